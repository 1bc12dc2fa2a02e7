--- The piece of an answer that passes through the body filter, without a Lua string of it: that would have to be
-- allocated, hashed and collected for each piece of each answer.
local base = require "resty.core.base"
local ffi = require "ffi"
require "resty.core.param"  -- declares the functions that do it

local AGAIN = base.FFI_AGAIN
local ffi_copy, ffi_new, tonumber = ffi.copy, ffi.new, tonumber
local get_request = base.get_request
local copy_body, get_body = ffi.C.ngx_http_lua_ffi_copy_body_filter_param_body,
  ffi.C.ngx_http_lua_ffi_get_body_filter_param_body
local get_eof = ffi.C.ngx_http_lua_ffi_get_body_filter_param_eof

local FIRST = 16 * 1024

local piece, length = ffi_new("unsigned char *[1]"), ffi_new("size_t[1]")
local copy, capacity = ffi_new("uint8_t[?]", FIRST), FIRST

local _M = {}

--- Copies the piece into memory that all requests of this worker share, with a NUL behind it; in the body filter.
-- @return uint8_t * valid until the next call, its size (nothing is copied where that is 0), and whether it is the
--   answer's last piece
function _M.get()
  local r = get_request()
  local several = get_body(r, piece, length) == AGAIN
  local size = tonumber(length[0])
  if size > 0 then
    if size >= capacity then
      while capacity <= size do
        capacity = capacity * 2
      end
      copy = ffi_new("uint8_t[?]", capacity)
    end
    if several then
      copy_body(r, copy)
    else
      ffi_copy(copy, piece[0], size)
    end
    copy[size] = 0
  end
  local last = get_eof(r) == 1
  return copy, size, last
end

return _M
