--- What the access log tells of a request beyond nginx's own figures, as JSON.
--
-- Strings that may hold anything come encoded already (`pool.json`, `key.json`); the others are words of our own.
local bit = require "bit"

local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min
local int = bit.tobit
local MOST = 2 ^ 31 - 1

local _M = {}

local function whole(x)
  return (int(floor(max(0, min(x, MOST)))))
end

--- @param r record, see `tokenweir.record`; of a request that nginx refused before the access phase it is empty
-- @param id string, the request's, plain
-- @param outcome string, "" where it never came to one
-- @param output, prompt numbers of tokens, or nil
-- @return string, JSON members without braces and without the last quote: it ends in the id itself. LuaJIT finds a
--   string by a hash of a few of its bytes, among them the last four; without these, all lines would be looked for in
--   one place
function _M.of(r, id, outcome, output, prompt)
  local first = r.first_token or r.first_byte
  local line = '"kind":"' .. (r.kind or "") .. '","model":' .. (r.pool and r.pool.json or '""')
    .. ',"key":' .. (r.key and r.key.json or '""') .. ',"backend":"' .. (r.backend or "")
    .. '","outcome":"' .. outcome .. '","predicted":' .. (r.mean and whole(ceil(r.mean * r.n)) or "null")
    .. ',"output":' .. (output and whole(output) or "null") .. ',"prompt":' .. (prompt and whole(prompt) or "null")
    .. ',"wait_ms":' .. (r.wait_ms and whole(r.wait_ms) or "null")
    .. ',"ttft_ms":' .. (first and whole(first - r.arrived) or "null")
    .. ',"tries":' .. int(r.tries or 0) .. ',"id":"' .. id
  return line
end

return _M
