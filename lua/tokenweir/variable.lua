--- Reads and writes nginx's variables on the path of requests.
local base = require "resty.core.base"
local ffi = require "ffi"
require "resty.core.var"  -- declares the functions that do it

local C = ffi.C
local ngx, tonumber = ngx, tonumber
local get_request = base.get_request
local tobit = require("bit").tobit

local LONGEST_NAME, LONGEST_PROBLEM = 64, 256

local value, length = ffi.new("unsigned char *[1]"), ffi.new("size_t[1]")
local lowercase, problem = ffi.new("unsigned char[?]", LONGEST_NAME), ffi.new("unsigned char[?]", LONGEST_PROBLEM)
local reason = ffi.new("char *[1]")
local digits = require("string.buffer").new()

local _M = {}

--- @return string the variable's value, or nil
-- The reader of `ngx.var` ends in a call that LuaJIT cannot compile unless it is inlined into a function that goes on
-- after it, as this one does: run by the interpreter it takes half a microsecond each time.
function _M.get(name)
  local text = ngx.var[name]
  return text
end

--- The same without a Lua string of it.
-- @return pointer to the bytes, valid while the request is, and their number; nil where it has no value
function _M.bytes(name)
  if C.ngx_http_lua_ffi_var_get(get_request(), name, #name, lowercase, 0, value, length, reason) ~= 0 then
    return nil, 0
  end
  return value[0], tonumber(length[0])
end

--- Gives a variable that can be written the `n` bytes at `p`.
function _M.set_bytes(name, p, n)
  length[0] = LONGEST_PROBLEM
  C.ngx_http_lua_ffi_var_set(get_request(), name, #name, lowercase, p, n, problem, length)
end
local set_bytes = _M.set_bytes

--- Gives it a whole number, 0 to 2^31 - 1.
function _M.set_whole(name, x)
  digits:reset()
  digits:put(tobit(x))
  set_bytes(name, digits:ref())
end

return _M
