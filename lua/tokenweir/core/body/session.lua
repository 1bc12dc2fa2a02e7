--- Which session a request belongs to: what it names, else what its conversation opens with.
--
-- In this order: the header X-Session-ID, the member `prompt_cache_key`, the member `user` (only if asked for: in many
-- clients it is constant), the model and the first messages, which later turns of a chat repeat. The same name under
-- two API keys is two sessions. A session is a 64-bit hash, as two 32-bit halves.
local bit = require "bit"
local ffi = require "ffi"
local hash = require "tokenweir.core.hash"
local prompt_digest = require "tokenweir.core.body.prompt_digest"
local request = require "tokenweir.core.body.request"

local bxor, rshift = bit.bxor, bit.rshift
local feed_string, state = hash.feed_string, hash.state
local opening, text = prompt_digest.opening, request.text
local int32 = ffi.typeof("int32_t")
local tonumber = tonumber

local LONGEST_NAME = 1024

-- The sources, so that a header and a member of the same text are two sessions.
local BY_HEADER, BY_CACHE_KEY, BY_USER = 1, 2, 3

local _M = {}

-- Those of the hash that was just made.
local function halves(seed)
  return bxor(tonumber(int32(state[0])), seed), tonumber(int32(rshift(state[0], 32)))
end

local function of_name(name, source, seed)
  state[0] = source
  feed_string(name)
  return halves(seed)
end

--- A number to tell the sessions of an API key apart by.
-- @param id string, of the key
function _M.seed(id)
  return (tonumber(int32(hash.string(id))))
end

--- @param header string or nil, the value of X-Session-ID
-- @param parsed what `request.parse` filled; `kind` nil: no body that is understood
-- @param by_user boolean, whether the member `user` names a session
-- @param seed of the API key, 0 without one
-- @return two numbers; or nil where nothing tells a session
function _M.identify(header, parsed, by_user, seed)
  if header and header ~= "" then
    return of_name(header, BY_HEADER, seed)
  end
  if not parsed.kind then
    return nil
  end
  local name = text(parsed, "prompt_cache_key", LONGEST_NAME)
  if name and name ~= "" then
    return of_name(name, BY_CACHE_KEY, seed)
  end
  name = by_user and text(parsed, "user", LONGEST_NAME)
  if name and name ~= "" then
    return of_name(name, BY_USER, seed)
  end
  if opening(parsed) then
    return halves(seed)
  end
  return nil
end

return _M
