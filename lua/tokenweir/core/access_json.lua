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

--- Writes the members.
-- @param to string buffer; it gets JSON members without braces. No string is made of them: LuaJIT finds a string by a
--   hash of some of its bytes, and lines are alike in those
-- @param r see `tokenweir.request_context`; of a request that nginx refused before the access phase it is empty
-- @param id const uint8_t *[1], where the request's id stands (a pointer that is passed on becomes an object);
--   @param id_size number of its bytes, all plain
-- @param outcome string, "" where it never came to one
-- @param output, prompt numbers of tokens, or nil
function _M.write(to, r, id, id_size, outcome, output, prompt)
  local first = r.first_token or r.first_byte
  to:put('"kind":"', r.kind or "", '","model":', r.pool and r.pool.json or r.asked or '""',
    ',"key":', r.key and r.key.json or '""', ',"backend":"', r.backend or "", '","outcome":"', outcome,
    '","predicted":', r.mean and whole(ceil(r.mean * r.n)) or "null",
    ',"output":', output and whole(output) or "null", ',"prompt":', prompt and whole(prompt) or "null",
    ',"prompt_estimate":', r.prompt and whole(r.prompt) or "null",
    ',"wait_ms":', r.wait_ms and whole(r.wait_ms) or "null",
    ',"ttft_ms":', first and whole(first - r.arrived) or "null", ',"tries":', int(r.tries or 0), ',"id":"')
  to:putcdata(id[0], id_size)
  if r.code then
    to:put('","code":"', r.code)
  end
  if r.shadow then
    to:put('","shadow":"', r.shadow)
  end
  to:put('"')
end

return _M
