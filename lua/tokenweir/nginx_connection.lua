--- The connection below a request, as nginx itself has it: for what its Lua module does not offer.
local base = require "resty.core.base"
local ffi = require "ffi"

local cast = ffi.cast
local get_request = base.get_request

ffi.cdef [[
typedef struct tw_connection tw_connection;
struct tw_connection {             /* how ngx_connection_t begins, in every version */
  void *data, *read, *write;
  int fd;
  ssize_t (*recv)(tw_connection *c, unsigned char *buffer, size_t size);
  ssize_t (*send)(tw_connection *c, const char *buffer, size_t size);
};
typedef struct {                   /* how ngx_http_request_t begins */
  uint32_t signature;
  tw_connection *connection;
} tw_request_head;
]]

local HEAD = ffi.typeof("tw_request_head *")
local SIGNATURE = 0x50545448       -- "HTTP"

local _M = {}

--- @return tw_connection of the request that runs; or nil where memory does not look like a request. Over HTTP/2 it is
--   a connection that nginx feigns for the stream.
function _M.current()
  local r = get_request()
  r = r and cast(HEAD, r)
  if not r or r.signature ~= SIGNATURE or r.connection == nil then
    return nil
  end
  return r.connection
end

return _M
