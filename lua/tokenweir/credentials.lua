--- The API keys that backends want of us. The sidecar of this host writes them into a file of mode 0600; they are never
-- in Redis or a log. Each worker reads the file again when it has changed.
local cjson = require "cjson.safe"

local open = io.open
local type, pairs = type, pairs

local _M = {}

-- Name -> what stands in Authorization. A name that leaves the file stays: what the last snapshot still wants is served
-- until the next one comes.
local authorizations = {}
local path, text, problem

local function check(document)
  if type(document) ~= "table" then
    return nil, "not a JSON object of name -> key"
  end
  for name, key in pairs(document) do
    if type(name) ~= "string" or type(key) ~= "string" or key == "" or key:find("[%c\127]") then
      return nil, "the key '" .. tostring(name):gsub("%c", "?") .. "' is not one line of printable characters"
    end
  end
  return true
end

--- Reads the file if it has changed. A bad one leaves what is known.
-- @return boolean, whether a key is new or another one
function _M.refresh()
  local file = path and open(path, "rb")
  if not file then
    return false
  end
  local now = file:read("*a")
  file:close()
  if now == text then
    return false
  end
  text = now
  local document, err = cjson.decode(now or "")
  local ok = document ~= nil
  if ok then
    ok, err = check(document)
  end
  if not ok then
    if problem ~= err then
      ngx.log(ngx.ERR, "tokenweir: ", path, ": ", err, "; the keys that are known stay")
    end
    problem = err
    return false
  end
  problem = nil
  local changed = false
  for name, key in pairs(document) do
    local authorization = "Bearer " .. key
    if authorizations[name] ~= authorization then
      authorizations[name], changed = authorization, true
    end
  end
  return changed
end

--- Says where the file is; in init_by_lua. It need not be there yet.
-- @param file string or nil: no backend wants a key
function _M.open(file)
  path, text = file, nil
  return _M.refresh()
end

--- @param name string, `wants_key` of a backend
-- @return string what stands in Authorization, or nil while the key is not known
function _M.authorization(name)
  return authorizations[name]
end

return _M
