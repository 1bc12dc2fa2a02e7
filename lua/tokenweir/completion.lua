--- The completion record of a request that reached a backend: numbers for the sidecar, never text.
local completion_json = require "tokenweir.core.completion_json"
local events = require "tokenweir.events"

local ceil = math.ceil
local begin, finish, write = events.begin, events.finish, completion_json.write

local _M = {}

--- What the answer told of its tokens.
-- @return output tokens or nil, their source ("usage", "events", "none"), prompt tokens, cached tokens (both: a number,
--   or nil or false where it is not told)
function _M.tokens(r)
  local told = r.sse or r.usage
  if not told then
    return nil, "none"
  end
  local output = told.completion_tokens
  if output then
    return output, "usage", told.prompt_tokens, told.cached_tokens
  end
  local seen = r.sse and r.sse.events
  if seen and seen > 0 then
    return ceil(seen * r.tokens_per_event), "events", told.prompt_tokens, told.cached_tokens
  end
  return nil, "none", told.prompt_tokens, told.cached_tokens
end

--- Writes the record into the buffer that goes to Redis.
function _M.write(r, id, id_size, status, outcome, output, source, prompt, cached, now)
  local to = begin()
  if to then
    write(to, r, id, id_size, status, outcome, output, source, prompt, cached, now)
    finish()
  end
end

return _M
