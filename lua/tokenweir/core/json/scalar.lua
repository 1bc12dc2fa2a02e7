--- Where numbers and literals of JSON end (RFC 8259): by byte offset, nothing is decoded.
local COMMA = 44

local _M = {}

local function is_digit(c)
  return c >= 48 and c <= 57
end
_M.is_digit = is_digit

local function digits_end(p, i)
  while is_digit(p[i]) do
    i = i + 1
  end
  return i
end

--- Steps over whole numbers that a comma follows, as lists of token ids are long: one loop that holds no other, up to
-- six digits a number. Returns where it stopped, at the beginning of a value, and how many it passed.
function _M.integers_end(p, i)
  local count = 0
  while is_digit(p[i]) do
    local j = i + 1
    if is_digit(p[j]) then
      if p[i] == 48 then break end
      j = j + 1
      if is_digit(p[j]) then j = j + 1 end
      if is_digit(p[j]) then j = j + 1 end
      if is_digit(p[j]) then j = j + 1 end
      if is_digit(p[j]) then j = j + 1 end
    end
    if p[j] ~= COMMA then break end
    j = j + 1
    if p[j] == 32 then j = j + 1 end
    i, count = j, count + 1
  end
  return i, count
end

--- @return index after the number at `i`; or nil and the index of the byte that should have been a digit.
function _M.number_end(p, i)
  if p[i] == 45 then
    i = i + 1
  end
  local j
  if p[i] == 48 then
    j = i + 1
  else
    j = digits_end(p, i)
    if j == i then
      return nil, i
    end
  end
  local c = p[j]
  if c == 46 then
    i = j + 1
    j = digits_end(p, i)
    if j == i then
      return nil, i
    end
    c = p[j]
  end
  if c == 101 or c == 69 then
    i = j + 1
    c = p[i]
    if c == 43 or c == 45 then
      i = i + 1
    end
    j = digits_end(p, i)
    if j == i then
      return nil, i
    end
  end
  return j
end

--- @return index after true, false or null at `i`, or nil. Each byte is read only if the one before it matched.
function _M.literal_end(p, i, c)
  if c == 116 then
    return p[i + 1] == 114 and p[i + 2] == 117 and p[i + 3] == 101 and i + 4 or nil
  elseif c == 102 then
    return p[i + 1] == 97 and p[i + 2] == 108 and p[i + 3] == 115 and p[i + 4] == 101 and i + 5 or nil
  elseif c == 110 then
    return p[i + 1] == 117 and p[i + 2] == 108 and p[i + 3] == 108 and i + 4 or nil
  end
  return nil
end

return _M
