--- Reads and writes nginx's variables on the path of requests, and reads the status of the answer.
local base = require "resty.core.base"
local ffi = require "ffi"
local fixed_array = require "tokenweir.core.fixed_array"
-- These declare the functions that do it.
require "resty.core.misc"
require "resty.core.var"

local get_status = ffi.C.ngx_http_lua_ffi_get_resp_status
local get_variable, set_variable = ffi.C.ngx_http_lua_ffi_var_get, ffi.C.ngx_http_lua_ffi_var_set
local ffi_string, tonumber = ffi.string, tonumber
local get_request = base.get_request
local tobit = require("bit").tobit

local LONGEST_NAME, LONGEST_PROBLEM = 64, 256

local value, length = ffi.new("unsigned char *[1]"), ffi.new("size_t[1]")
local lowercase, problem = fixed_array.new("uint8_t", LONGEST_NAME), fixed_array.new("uint8_t", LONGEST_PROBLEM)
local reason = ffi.new("char *[1]")
local digits = require("string.buffer").new()

local _M = {}

-- Whether the variable has a value, which then is in `value` and `length`.
local function find(name)
  return (get_variable(get_request(), name, #name, lowercase, 0, value, length, reason) == 0)
end

--- @return string the variable's value, or nil
-- `ngx.var` says the same, by way of a metatable.
function _M.get(name)
  if not find(name) then
    return nil
  end
  return (ffi_string(value[0], length[0]))
end

--- The same without a Lua string of it.
-- @return pointer to the bytes, valid while the request is, and their number; nil where it has no value
function _M.bytes(name)
  if not find(name) then
    return nil, 0
  end
  return value[0], tonumber(length[0])
end

--- @return number `ngx.status`, without the metatable
function _M.status()
  return (get_status(get_request()))
end

--- Gives a variable that can be written the `n` bytes at `p`, which are copied.
function _M.set_bytes(name, p, n)
  length[0] = LONGEST_PROBLEM
  set_variable(get_request(), name, #name, lowercase, p, n, problem, length)
end
local set_bytes = _M.set_bytes

--- Gives it a string.
function _M.set(name, text)
  set_bytes(name, text, #text)
end

--- Gives it a whole number, 0 to 2^31 - 1.
function _M.set_whole(name, x)
  digits:reset()
  digits:put(tobit(x))
  set_bytes(name, digits:ref())
end

return _M
