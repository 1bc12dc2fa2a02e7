--- Whether the client of a request is still connected, in the log phase. nginx does not tell: an answer whose framing
-- it could not read ends for Lua just as one whose client has left.
local base = require "resty.core.base"
local ffi = require "ffi"
local sockets = require "tokenweir.sockets"
local variable = require("tokenweir.variable").get

local ngx = ngx
local cast = ffi.cast
local tonumber = tonumber

-- The first members of ngx_http_request_s and ngx_connection_s, which have been the same since nginx 0.1.
ffi.cdef [[
typedef struct { void *data, *read, *write; int fd; } tw_connection;
typedef struct { uint32_t signature; tw_connection *connection; } tw_request;
]]

local POINTER = ffi.typeof("tw_request *")
local SIGNATURE = 0x50545448  -- "HTTP"

local _M = {}

--- @return boolean; false also where it cannot be told, as of one request of several on an HTTP/2 connection
function _M.connected()
  local r = base.get_request()
  r = r and cast(POINTER, r)
  if not r or r.signature ~= SIGNATURE or r.connection == nil or variable("server_protocol") == "HTTP/2.0" then
    return false
  end
  local fd = r.connection.fd
  local _, port = sockets.endpoints(fd)
  return port ~= nil and port == tonumber(variable("remote_port")) and sockets.is_established(fd)
    and not ngx.worker.exiting()
end

return _M
