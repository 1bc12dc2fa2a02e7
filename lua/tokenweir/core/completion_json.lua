--- The completion record of a request as JSON, written into a buffer. No string is made of it: LuaJIT finds a string by
-- a hash of some of its bytes, and records are alike in those.
--
-- Strings that may hold anything come encoded already (`pool.json`, `key.json`); the others are words of our own.
local bit = require "bit"
local base64 = require "tokenweir.core.base64"
local features = require "tokenweir.core.prediction.features"
local degraded_as = require("tokenweir.core.degraded").as

local encode = base64.encode
local ceil, max, min = math.ceil, math.max, math.min
local format = string.format
-- Compiled code writes a 32-bit integer several times faster than a double.
local int = bit.tobit
local MOST = 2 ^ 31 - 1

local _M = {}

-- No branch goes by a figure: LuaJIT would compile all that follows once more for each way.
local function whole(x)
  return (ceil(max(0, min(x or 0, MOST))))
end

-- Milliseconds, rounded.
local function ms(x)
  return (max(0, min(x or 0, MOST)))
end

-- What few requests have; the contract's default of both is an empty string.
local function put_unusual(to, r)
  local degraded = degraded_as(r)
  if degraded or r.engine_error then
    to:put(',"error":"', r.engine_error or "", '","degraded":"', degraded or "", '"')
  end
end

local VECTOR = ',"features":' .. features.VERSION .. ',"vector":"'

-- The vector and the words of a request whose features are recorded.
local function put_features(to, r)
  to:put(VECTOR, encode(r.vector), '","words":"', encode(r.hashed), '","key_number":', format("%.0f", r.key_id),
    ',"system_number":', format("%.0f", r.system_id), ',"learned":', r.learned and format("%.4f", r.learned) or "null")
end

--- Writes one record.
-- @param to string buffer; it gets JSON members without braces, but for `gateway` and `time_ms`
-- @param r see `tokenweir.request_context`, of a request that reached a backend
-- @param id const uint8_t *[1], where the request's id stands (a pointer that is passed on becomes an object);
--   @param id_size number of its bytes, all plain
-- @param prompt, cached, output numbers of tokens, or nil
function _M.write(to, r, id, id_size, status, outcome, output, source, prompt, cached, now)
  local told, stream = r.sse or r.usage, r.sse
  local first = r.first_token or r.first_byte
  to:put('"id":"')
  to:putcdata(id[0], id_size)
  to:put('","kind":"', r.kind, '","model":', r.pool.json, ',"key":', r.key and r.key.json or '""',
    ',"priority":"', r.priority, '","backend":"', r.backend, '","stream":', r.stream and "true" or "false",
    ',"n":', int(r.n), ',"prompt_bytes":', int(whole(r.prompt_bytes)), ',"prompt_estimate":', int(whole(r.prompt)),
    ',"max_tokens":', r.max_tokens and int(whole(r.max_tokens)) or "null",
    ',"mean":', int(whole(r.mean)), ',"median":', int(whole(r.median)), ',"q90":', int(whole(r.q90)),
    ',"predictor":"', r.source or "running")
  to:put('","output":', output and int(whole(output)) or "null", ',"output_source":"', source,
    '","events":', int(stream and stream.events or 0), ',"prompt":', prompt and int(whole(prompt)) or "null",
    ',"cached":', cached and int(whole(cached)) or "null", ',"finish":"', told and told.finish_reason or "",
    '","wait_ms":', int(ms(r.wait_ms)), ',"ttft_ms":', first and int(ms(first - r.arrived)) or "null",
    ',"total_ms":', int(ms(now - r.arrived)), ',"status":', int(status), ',"outcome":"', outcome,
    '","policy":"', r.policy, '","shadow":"', r.shadow or "", '"')
  put_unusual(to, r)
  if r.vector then
    put_features(to, r)
  end
end

return _M
