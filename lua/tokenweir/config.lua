--- What this gateway is told at its start: gateway.json, rendered from tokenweir.yaml. Read once, by the master.
--
-- {
--   "gateway_id": "gw-1",                 letters, digits, '.', '_', '-'; default: the host's name
--   "state_dir": "/var/lib/tokenweir",    the last settings and snapshot are kept there; null: nowhere
--   "body_dir": "/path/temp/body",        nginx's client_body_temp_path, swept at a start; null: not swept
--   "backend_keys_file": "/path/keys.json",   written by the sidecar, read again by the workers; null: none
--   "small_model_socket": "/path/small-model.sock",   where the small model listens, if it runs; null: nowhere
--   "transfer_socket": "/path/transfer.sock",   where the sidecar of this host moves caches; null: nowhere
--   "redis": {
--     "host": "127.0.0.1",                IP address, name or "unix:/path"
--     "port": 6379, "db": 0,
--     "user": "gateway", "password_file": "/path",   null: no AUTH; the file is read by the master
--     "tls": false, "tls_name": null, "tls_verify": true,
--     "connect_ms": 500, "send_ms": 1000, "read_ms": 1000
--   },
--   "poll_ms": 100,
--   "idle_ms": 600000                     what nginx.conf has as its read time-out; the settings may say another
-- }
-- Members that are not named here are kept for other modules.
local cjson = require "cjson.safe"
local sockets = require "tokenweir.sockets"

local open = io.open
local type, pairs = type, pairs

local REDIS = {
  host = "127.0.0.1", port = 6379, db = 0, tls = false, tls_verify = true,
  connect_ms = 500, send_ms = 1000, read_ms = 1000,
}

local _M = {}

local function read_file(path)
  local file, err = open(path, "rb")
  if not file then
    return nil, err
  end
  local text = file:read("*a")
  file:close()
  return text
end

local function without_nulls(value)
  for name, item in pairs(value) do
    if type(item) == "userdata" then
      value[name] = nil
    elseif type(item) == "table" then
      without_nulls(item)
    end
  end
  return value
end

local function check_redis(redis, path)
  if type(redis) ~= "table" then
    return nil, path .. ": redis: an object is wanted"
  end
  for name, default in pairs(REDIS) do
    if redis[name] == nil then
      redis[name] = default
    elseif type(redis[name]) ~= type(default) then
      return nil, path .. ": redis." .. name .. ": a " .. type(default) .. " is wanted"
    end
  end
  if redis.password_file then
    local password, err = read_file(redis.password_file)
    if not password then
      return nil, path .. ": redis.password_file: " .. err
    end
    redis.password = password:gsub("%s+$", "")
  end
  redis.tls_name = redis.tls_name or redis.host
  if redis.host:sub(1, 5) ~= "unix:" then
    redis.address = sockets.resolve(redis.host)
  end
  return true
end

local function default_id()
  local name = sockets.hostname():gsub("[^%w._-]", "-"):sub(1, 64)
  return name:find("^%w") and name or "gateway"
end

--- Reads gateway.json.
-- @return table, also kept as `config.current`; or nil and what is wrong
function _M.load(path)
  local text, err = read_file(path)
  if not text then
    return nil, "cannot read the gateway's settings: " .. err
  end
  local settings
  settings, err = cjson.decode(text)
  if type(settings) ~= "table" then
    return nil, path .. ": not a JSON object" .. (err and ": " .. err or "")
  end
  without_nulls(settings)
  settings.gateway_id = settings.gateway_id or default_id()
  if type(settings.gateway_id) ~= "string" or not settings.gateway_id:find("^%w[%w._-]*$")
    or #settings.gateway_id > 64 then
    return nil, path .. ": gateway_id: at most 64 letters, digits, '.', '_' and '-' are wanted, beginning with a "
      .. "letter or digit, for example \"gw-1\""
  end
  settings.poll_ms = settings.poll_ms or 100
  if type(settings.poll_ms) ~= "number" or settings.poll_ms < 10 or settings.poll_ms > 1000 then
    return nil, path .. ": poll_ms: a number from 10 to 1000 is wanted"
  end
  settings.redis = settings.redis or {}
  local ok
  ok, err = check_redis(settings.redis, path)
  if not ok then
    return nil, err
  end
  _M.current = settings
  return settings
end

return _M
