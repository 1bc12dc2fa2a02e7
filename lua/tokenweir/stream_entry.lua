--- Entries of a Redis stream, as XRANGE answers with them.
local match = string.match
local tonumber, type = tonumber, type

local _M = {}

-- `fields` is an array: name, value, name, value ...
local function field(fields, name)
  for k = 1, type(fields) == "table" and #fields - 1 or 0, 2 do
    if fields[k] == name then
      return fields[k + 1]
    end
  end
end

--- One entry.
-- @param name of the field that is wanted
-- @return its value; when it was written, ms of Redis's clock; or nil where the entry has no such field or no such id
function _M.read(entry, name)
  local value, written = field(entry[2], name), tonumber(match(entry[1], "^%d+") or nil)
  if value and written then
    return value, written
  end
end

--- The id after this one: XRANGE begins with what it is given (Redis before 6.2 knows no exclusive bound).
-- @return string; or nil where `id` is none
function _M.following(id)
  local ms, sequence = match(id, "^(%d+)-(%d+)$")
  return ms and ms .. "-" .. ("%.0f"):format(tonumber(sequence) + 1) or nil
end

return _M
