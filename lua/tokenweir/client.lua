--- Whether the client of a request is still connected, in the log phase. nginx does not tell: an answer whose framing
-- it could not read ends for Lua just as one whose client has left.
local connection = require("tokenweir.nginx_connection").current
local sockets = require "tokenweir.sockets"
local variable = require("tokenweir.variable").get

local ngx = ngx
local tonumber = tonumber

local _M = {}

--- @return boolean; false also where it cannot be told, as of one request of several on an HTTP/2 connection
function _M.connected()
  local c = connection()
  if not c or variable("server_protocol") == "HTTP/2.0" then
    return false
  end
  local fd = c.fd
  local _, port = sockets.endpoints(fd)
  -- Of the connection itself, whoever a proxy in front says that the client is.
  local remote_port = variable("realip_remote_port") or variable("remote_port")
  return port ~= nil and port == tonumber(remote_port) and sockets.is_established(fd)
    and not ngx.worker.exiting()
end

return _M
