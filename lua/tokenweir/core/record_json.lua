--- Writes completion records as JSON. A general encoder takes 9 us a record; this one knows the members and writes no
-- value that is the contract's default, which a reader fills in again.
local ffi = require "ffi"
local contract = require "tokenweir.contract"

ffi.cdef [[ size_t tw_strspn(const char *s, const char *accept) __asm__("strspn"); ]]

local C = ffi.C
local sort = table.sort
local format, gsub, byte = string.format, string.gsub, string.byte
local pairs, type = pairs, type
local huge = math.huge

local PLAIN = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._:-"
--- Strings whose quoted form is kept.
local MOST_QUOTED = 4096

local names, heads, kinds, defaults = {}, {}, {}, {}

for name in pairs(contract.shapes.completion.members) do
  if name ~= "id" then
    names[#names + 1] = name
  end
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

local function quote(value)
  if not is_utf8(value) then
    value = gsub(value, "[\128-\255]", "?")
  end
  return '"' .. gsub(value, '[%z\1-\31"\\\127]', escape) .. '"'
end

-- Most strings are one of few (a model, a backend, an outcome), so what was quoted once is kept.
local quoted, quoted_count = {}, 0

local function remember(value)
  if quoted_count == MOST_QUOTED then
    quoted, quoted_count = {}, 0
  end
  local text = quote(value)
  quoted[value] = text
  quoted_count = quoted_count + 1
  return text
end

-- Ids differ from request to request, and nearly all stand as they are. Compiled code runs through this search of
-- libc's, but not through one for a pattern.
local function put_id(batch, id)
  if C.tw_strspn(id, PLAIN) == #id then
    batch:put('{"id":"', id, '"')
  else
    batch:put('{"id":', quote(id))
  end
end

local _M = {}

--- Appends one record to a batch and empties it: its keys stay in place, so that filling it again is cheap.
-- @param batch string.buffer; the caller writes the brackets and commas around its records
-- @param record table with members of the contract's `Completion`; nil and infinite numbers are left out
function _M.append(batch, record)
  local separator, id = "{", record.id
  if id then
    put_id(batch, id)
    separator, record.id = ",", nil
  end
  for k = 1, count do
    local name = names[k]
    local value = record[name]
    record[name] = nil
    if value ~= nil and value ~= defaults[k] then
      local kind = kinds[k]
      if kind == "string" then
        batch:put(separator, heads[k], quoted[value] or remember(value))
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
