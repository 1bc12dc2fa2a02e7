--- Writes completion records as JSON. A general encoder takes 9 us a record; this one knows the members and writes no
-- value that is the contract's default, which a reader fills in again.
local contract = require "tokenweir.contract"

local concat, sort = table.concat, table.sort
local format, gsub, byte = string.format, string.gsub, string.byte
local pairs, type = pairs, type
local huge = math.huge

local names, heads, kinds, defaults = {}, {}, {}, {}

for name in pairs(contract.shapes.completion.members) do
  names[#names + 1] = name
end
sort(names)
local count = #names
for k = 1, count do
  local member = contract.shapes.completion.members[names[k]]
  heads[k] = ',"' .. names[k] .. '":'
  kinds[k] = member.type
  defaults[k] = member.default
end

local function escape(character)
  return format("\\u%04x", byte(character))
end

--- Whether a string can stand in JSON as it is. A loop, since a pattern would leave the compiled trace.
local function is_plain(value)
  for k = 1, #value do
    local b = byte(value, k)
    if b < 32 or b == 34 or b == 92 or b > 126 then
      return false
    end
  end
  return true
end

--- Whether all bytes above 127 form UTF-8 (RFC 3629), without which a reader would refuse the whole batch.
local function is_utf8(value)
  local k, size = 1, #value
  while k <= size do
    local b = byte(value, k)
    local more = b < 128 and 0 or b >= 194 and b < 224 and 1 or b >= 224 and b < 240 and 2 or b >= 240 and b < 245 and 3
    if not more or k + more > size then
      return false
    end
    local second = more > 0 and byte(value, k + 1)
    if (b == 224 and second < 160) or (b == 237 and second > 159) or (b == 240 and second < 144)
      or (b == 244 and second > 143) then
      return false
    end
    for j = k + 1, k + more do
      local continued = byte(value, j)
      if continued < 128 or continued > 191 then
        return false
      end
    end
    k = k + more + 1
  end
  return true
end

local function made_plain(value)
  if not is_utf8(value) then
    value = gsub(value, "[\128-\255]", "?")
  end
  return (gsub(value, '[%z\1-\31"\\\127]', escape))
end

--- Parts are kept between calls: growing a table anew for each batch costs more than the writing.
local parts = {}

local _M = {}

--- @param records list of tables with members of the contract's `Completion`; nil and infinite numbers are left out
-- @param size number of records
-- @return string a JSON array
function _M.encode(records, size)
  local at = 1
  parts[1] = "["
  for r = 1, size do
    local record = records[r]
    local first = at + 1
    for k = 1, count do
      local value = record[names[k]]
      if value ~= nil and value ~= defaults[k] then
        local kind = kinds[k]
        if kind == "string" then
          if not is_plain(value) then
            value = made_plain(value)
          end
          parts[at + 1], parts[at + 2], parts[at + 3], parts[at + 4] = heads[k], '"', value, '"'
          at = at + 4
        elseif kind == "boolean" then
          parts[at + 1], parts[at + 2] = heads[k], value and "true" or "false"
          at = at + 2
        elseif type(value) == "number" and value > -huge and value < huge then
          parts[at + 1], parts[at + 2] = heads[k], value
          at = at + 2
        end
      end
    end
    if at >= first then
      -- The first member of an object has a brace where the others have a comma.
      parts[first] = (r > 1 and ",{" or "{") .. parts[first]:sub(2)
    else
      at = at + 1
      parts[at] = r > 1 and ",{" or "{"
    end
    at = at + 1
    parts[at] = "}"
  end
  parts[at + 1] = "]"
  return concat(parts, "", 1, at + 1)
end

return _M
