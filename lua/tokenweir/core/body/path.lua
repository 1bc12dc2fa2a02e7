--- The path of a request as its client wrote it, which is what the engine is sent. nginx chose the location by a
-- tidied copy of it, so whatever tidies to something else (`/v1/../metrics`) would reach pages of the engine that are
-- not the API.
local find, lower, sub = string.find, string.lower, string.sub

--- What another server may read as a slash, a dot or an end of the path.
local ESCAPED = { "%2f", "%2e", "%5c", "%00" }

local _M = {}

--- @param target string, the request's target as sent: path and query
-- @return string the path without its query
function _M.of(target)
  local query = find(target, "?", 1, true)
  return query and sub(target, 1, query - 1) or target
end

--- Whether every server reads the path as it stands, below /v1/.
-- @param path string, see `of`
-- @param escaped_slashes whether these are let through: in a name that is ours to read
-- @return true; or nil and what is wrong with it
function _M.check(path, escaped_slashes)
  if sub(path, 1, 4) ~= "/v1/" then
    return nil, "the path must begin with /v1/ as it is written"
  elseif find(path, "//", 1, true) then
    return nil, "the path holds an empty segment ('//')"
  elseif find(path, "/%.%.?[/;]") or find(path, "/%.%.?$") then
    return nil, "the path holds a dot segment ('.' or '..')"
  elseif find(path, "[\\#%z\1-\32\127]") then
    return nil, "the path holds a backslash, '#', blank or control character"
  end
  if find(path, "%", 1, true) then
    local folded = lower(path)
    for k = escaped_slashes and 2 or 1, #ESCAPED do
      if find(folded, ESCAPED[k], 1, true) then
        return nil, "the path holds an escaped slash, backslash, dot or zero byte"
      end
    end
  end
  return true
end

return _M
