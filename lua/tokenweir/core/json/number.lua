--- The value of a number that is written in JSON.
--
-- Most are short: a limit of 256 tokens, a temperature of 0.7. `strtod` takes a hundred nanoseconds for those and a
-- kilobyte of the processor's cache for instructions, because it is made for the long ones.
local ffi = require "ffi"
local bytes = require "tokenweir.core.bytes"
local fixed_array = require "tokenweir.core.fixed_array"

-- What is read with it has nine digits at most.
ffi.cdef [[ int32_t tw_strtol(const uint8_t *s, const uint8_t **end, int base) __asm__("strtol"); ]]

local strtol = ffi.C.tw_strtol
local number = bytes.number

local MINUS, POINT = 45, 46
local SHORT = 9

local tens = fixed_array.new("double", SHORT)
for k = 0, SHORT - 1 do
  tens[k] = 10 ^ k
end
local stop = fixed_array.new("const uint8_t *", 1)

local _M = {}

--- The number in `[first, last)` of `p`, which was checked to be one; something else follows it.
-- @param p const uint8_t *
function _M.value(p, first, last)
  if last - first > SHORT or p[first] == MINUS then
    return number(p + first)
  end
  local whole = strtol(p + first, stop, 10)
  if stop[0] == p + last then
    return whole
  end
  if stop[0][0] == POINT then
    local digits = p + last - stop[0] - 1
    local part = strtol(stop[0] + 1, stop, 10)
    if stop[0] == p + last then
      -- Both are exact in a double, so that the quotient is rounded once, as `strtod` does it.
      return (whole * tens[digits] + part) / tens[digits]
    end
  end
  return number(p + first)
end

return _M
