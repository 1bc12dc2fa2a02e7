--- Numbers for texts (a system prompt, a key, a session) by which worker tables know them: 52 bits, exact in a double,
-- so that no string and no 64-bit object is made on the path of a request. One plain loop: short inputs are the rule.
local bit = require "bit"
local ffi = require "ffi"
local bytes = require "tokenweir.core.bytes"
local finish = require("tokenweir.core.prediction.word_hash").finish

local band, bxor, rol, rshift, tobit = bit.band, bit.bxor, bit.rol, bit.rshift, bit.tobit
local cast = ffi.cast
local words = ffi.typeof("const int32_t *")

local _M = {}

local kept = { false }

--- A number from 1 to 2^52 for `n` bytes at `p`.
-- @param p const uint8_t *
-- @tparam number n
-- @tparam number seed a whole number below 2^52, such as an identity: of parts in a row
function _M.of(p, n, seed)
  local low = seed % 4294967296
  local a, b = tobit(low), tobit((seed - low) / 4294967296 + n)
  local w = cast(words, p)
  for k = 0, rshift(n, 2) - 1 do
    local x = w[k]
    a = tobit(rol(bxor(a, x), 13) * 5 + 0x65)
    b = bxor(tobit(rol(b, 7) + x), rshift(a, 15))
  end
  for k = n - band(n, 3), n - 1 do
    a = bxor(rol(a, 5), p[k])
  end
  b = finish(bxor(b, finish(a)))
  a = finish(tobit(a + rol(b, 9)))
  local number = band(b, 0xFFFFF) * 4294967296 + a % 4294967296
  return number > 0 and number or 1
end

--- The number of a Lua string.
function _M.string(s)
  -- The pointer does not keep the string from being collected, nor does an argument that is not used any more.
  kept[1] = s
  local id = _M.of(bytes.of(kept[1]), #s, 0)
  kept[1] = false
  return id
end

return _M
