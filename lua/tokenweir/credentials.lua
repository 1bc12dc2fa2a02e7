--- The keys that backends want of us: backend_keys.json, mode 0600, read by the master only. Never in Redis or logs.
local cjson = require "cjson.safe"

local open = io.open
local type, pairs = type, pairs

local _M = {}

local keys = {}

--- Reads the file; in init_by_lua.
-- @param path string or nil: no backend wants a key
-- @return true; or nil and what is wrong (never a key)
function _M.load(path)
  keys = {}
  if not path then
    return true
  end
  local file, err = open(path, "rb")
  if not file then
    return nil, "cannot read the backends' keys: " .. err
  end
  local document = cjson.decode(file:read("*a"))
  file:close()
  if type(document) ~= "table" then
    return nil, path .. ": not a JSON object of backend id -> key"
  end
  for id, key in pairs(document) do
    if type(key) ~= "string" or key:find("[%c\127]") then
      return nil, path .. ": the key of backend '" .. id .. "' must be one line of printable characters"
    end
    keys[id] = "Bearer " .. key
  end
  return true
end

--- @return string what stands in Authorization for a backend, or nil
function _M.authorization(backend)
  return keys[backend]
end

return _M
