--- Entries of a Redis stream, as XRANGE answers with them.
local match = string.match
local tonumber = tonumber

local _M = {}

--- @param fields array: name, value, name, value ...
-- @return the value of a field, or nil
function _M.field(fields, name)
  for k = 1, #fields - 1, 2 do
    if fields[k] == name then
      return fields[k + 1]
    end
  end
end

--- The id after this one: XRANGE begins with what it is given (Redis before 6.2 knows no exclusive bound).
-- @return string; or nil where `id` is none
function _M.following(id)
  local ms, sequence = match(id, "^(%d+)-(%d+)$")
  return ms and ms .. "-" .. ("%.0f"):format(tonumber(sequence) + 1) or nil
end

return _M
