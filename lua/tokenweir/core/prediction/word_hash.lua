--- 32-bit hashes of words and of pairs of words: shifts, and products small enough for doubles, so that they cost a few
-- nanoseconds and are equal in every LuaJIT. Well spread, not secret: whoever knows a word knows its hash.
local bit = require "bit"

local bxor, rol, rshift, tobit = bit.bxor, bit.rol, bit.rshift, bit.tobit

local _M = {}

--- The state after one more character (a code point, letters of ASCII in lower case); a word begins with 0.
function _M.step(h, character)
  return (bxor(rol(h, 5), character))
end

--- The hash of a word from its last state. Products stay below 2^51, where `tobit` is exact.
local function finish(h)
  h = bxor(h, rshift(h, 16))
  h = tobit(h * 648113)
  h = bxor(h, rshift(h, 15))
  h = tobit(h * 547377)
  return (bxor(h, rshift(h, 14)))
end
_M.finish = finish

--- The hash of two words in a row from theirs.
function _M.pair(first, second)
  return finish(bxor(rol(first, 11), second))
end

return _M
