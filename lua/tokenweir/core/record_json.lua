--- Writes completion records as JSON. A general encoder takes 9 us a record; this one knows the members and writes no
-- value that is the contract's default, which a reader fills in again.
local contract = require "tokenweir.contract"

local sort = table.sort
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
  heads[k] = '"' .. names[k] .. '":'
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

local _M = {}

--- Appends one record to a batch.
-- @param batch string.buffer; the caller writes the brackets and commas around its records
-- @param record table with members of the contract's `Completion`; nil and infinite numbers are left out
function _M.append(batch, record)
  local separator = "{"
  for k = 1, count do
    local value = record[names[k]]
    if value ~= nil and value ~= defaults[k] then
      local kind = kinds[k]
      if kind == "string" then
        if not is_plain(value) then
          value = made_plain(value)
        end
        batch:put(separator, heads[k], '"', value, '"')
        separator = ","
      elseif kind == "boolean" then
        batch:put(separator, heads[k], value and "true" or "false")
        separator = ","
      elseif type(value) == "number" and value > -huge and value < huge then
        batch:put(separator, heads[k], value)
        separator = ","
      end
    end
  end
  batch:put(separator == "{" and "{}" or "}")
end

return _M
