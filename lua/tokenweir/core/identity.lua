--- Numbers for texts (a system prompt, a key, a session) by which worker tables know them: 52 bits, exact in a double,
-- so that no string and no 64-bit object is made on the path of a request. One plain loop: short inputs are the rule.
local bit = require "bit"
local ffi = require "ffi"
local bytes = require "tokenweir.core.bytes"

local band, bxor, lshift, rol, rshift, tobit = bit.band, bit.bxor, bit.lshift, bit.rol, bit.rshift, bit.tobit
local cast = ffi.cast
local words = ffi.typeof("const int32_t *")

local _M = {}

local kept = { false }

-- Products stay below 2^51, where `tobit` is exact.
local function finish(h)
  h = tobit(bxor(h, rshift(h, 16)) * 648113)
  h = tobit(bxor(h, rshift(h, 15)) * 547377)
  return (bxor(h, rshift(h, 14)))
end

local function mixed(h, x)
  h = rol(bxor(h, x), 13)
  return (tobit(lshift(h, 2) + h + 0x65))
end

--- A number from 1 to 2^52 for the bytes in `[first, last)` of `p`.
-- @param p const uint8_t *
-- @tparam number seed a whole number below 2^52, such as an identity: of parts in a row
function _M.of(p, first, last, seed)
  local n = last - first
  local low = seed % 4294967296
  -- Spread, or a seed and the first bytes could make up for each other.
  local a, b = finish(tobit(low)), finish(tobit((seed - low) / 4294967296 + n))
  local rest = last - band(n, 7)
  -- Two halves that do not wait for each other.
  for k = first, rest - 8, 8 do
    local w = cast(words, p + k)
    a, b = mixed(a, w[0]), mixed(b, w[1])
  end
  for k = rest, last - 1 do
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
  local id = _M.of(bytes.of(kept[1]), 0, #s, 0)
  kept[1] = false
  return id
end

return _M
