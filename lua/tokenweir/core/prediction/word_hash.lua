--- 32-bit hashes of words and of pairs of words: shifts, and products small enough for doubles, so that they cost a few
-- nanoseconds and are equal in every LuaJIT. Well spread, not secret: whoever knows a word knows its hash.
local bit = require "bit"

local bxor, rol, rshift, tobit = bit.bxor, bit.rol, bit.rshift, bit.tobit

local _M = {
  --- Words and pairs of words are told apart by the low bits of their hashes: so many indices there are.
  SPACE = 32768,
}

--- The state after one more character (a code point, letters of ASCII in lower case); a word begins with 0.
function _M.step(h, character)
  return (bxor(rol(h, 5), character))
end

--- The hash of a word from its last state. The product stays below 2^52, where `tobit` is exact.
local function finish(h)
  h = tobit(bxor(h, rshift(h, 15)) * 648113)
  return (bxor(h, rshift(h, 14)))
end
_M.finish = finish

--- The hash of two words in a row from theirs, which are well spread already.
function _M.pair(first, second)
  return (bxor(rol(first, 11), second))
end

return _M
