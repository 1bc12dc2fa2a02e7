--- UTF-8 (RFC 3629).
local byte = string.byte

local _M = {}

--- Whether all of a string is UTF-8, without which a reader of JSON would refuse the whole.
function _M.is_valid(text)
  local k, size = 1, #text
  while k <= size do
    local b = byte(text, k)
    local more = b < 128 and 0 or b >= 194 and b < 224 and 1 or b >= 224 and b < 240 and 2 or b >= 240 and b < 245 and 3
    if not more or k + more > size then
      return false
    end
    local second = more > 0 and byte(text, k + 1)
    if (b == 224 and second < 160) or (b == 237 and second > 159) or (b == 240 and second < 144)
      or (b == 244 and second > 143) then
      return false
    end
    for j = k + 1, k + more do
      local continued = byte(text, j)
      if continued < 128 or continued > 191 then
        return false
      end
    end
    k = k + more + 1
  end
  return true
end

return _M
