--- The completion record of a request that reached a backend: numbers for the sidecar, never text.
local events = require "tokenweir.events"

local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min
local sub = string.sub

local MOST_WORD, MOST_N = 32, 1024

local _M = {}

--- What the answer told of its tokens.
-- @return output tokens or nil, their source ("usage", "events", "none"), prompt tokens or nil, cached tokens or nil
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
function _M.write(r, id, status, outcome, output, source, prompt, cached, now)
  local record = events.record()
  if not record then
    return
  end
  local told = r.sse or r.usage
  record.id, record.model, record.backend, record.kind = sub(id, 1, 64), r.model, r.backend, r.kind
  record.key, record.priority = r.key and r.key.id, r.priority
  record.stream, record.n = r.stream, min(MOST_N, r.n)
  record.prompt_bytes, record.prompt_estimate, record.max_tokens = r.prompt_bytes, r.prompt, r.max_tokens
  record.mean, record.median, record.q90 = r.mean, r.median, r.q90
  record.output, record.output_source, record.prompt, record.cached = output, source, prompt, cached
  record.events = r.sse and r.sse.events
  record.finish = told and told.finish_reason and sub(told.finish_reason, 1, MOST_WORD) or nil
  record.wait_ms = floor(r.wait_ms or 0)
  local first = r.first_token or r.first_byte
  record.ttft_ms = first and floor(max(0, first - r.arrived)) or nil
  record.total_ms = floor(max(0, now - r.arrived))
  record.status, record.outcome, record.policy, record.shadow = status, outcome, r.policy, r.shadow
end

return _M
