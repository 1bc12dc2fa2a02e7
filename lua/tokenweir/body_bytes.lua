--- The request's body in memory, without a Lua string of it: a string is hashed, and one of some hundred KB costs more
-- in fresh pages than all that is then done with it.
local base = require "resty.core.base"
local ffi = require "ffi"
require "resty.core.var"  -- declares the function that reads a variable

local C = ffi.C
local ffi_copy, ffi_new, tonumber = ffi.copy, ffi.new, tonumber
local get_request = base.get_request

local NAME = "request_body"
local FIRST = 64 * 1024

local value, length = ffi_new("unsigned char *[1]"), ffi_new("size_t[1]")
local lowercase, problem = ffi_new("char[?]", #NAME), ffi_new("char *[1]")
local copy, capacity = nil, 0

local _M = {}

--- Copies the body into memory that all requests of this worker share, with a NUL behind it.
-- To be called after `ngx.req.read_body`. Nginx has it in one piece where `client_body_in_single_buffer` is on.
-- @return uint8_t * valid until the next call, its size; nil when there is no body, or when it is in a file
function _M.get()
  if C.ngx_http_lua_ffi_var_get(get_request(), NAME, #NAME, lowercase, 0, value, length, problem) ~= 0 then
    return nil
  end
  local size = tonumber(length[0])
  if size >= capacity then
    capacity = capacity > 0 and capacity or FIRST
    while capacity <= size do
      capacity = capacity * 2
    end
    copy = ffi_new("uint8_t[?]", capacity)
  end
  ffi_copy(copy, value[0], size)
  copy[size] = 0
  return copy, size
end

return _M
