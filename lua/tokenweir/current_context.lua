--- Which context belongs to the request that runs.
--
-- A context is found by where nginx has its request: nginx leaves it there, in another location too. `ngx.ctx` would be
-- lost in another location, and takes three calls of nginx to be set and to be given up.
local base = require "resty.core.base"
local ffi = require "ffi"

local cast, pointer = ffi.cast, ffi.typeof("uintptr_t")
local get_ctx = require("resty.core.ctx").get_ctx_table
local get_request = base.get_request
local tonumber = tonumber

local _M = {}

local by_address = {}

local function address()
  return (tonumber(cast(pointer, get_request())))
end

--- Gives the request a context, in the access phase.
function _M.set(r)
  by_address[address()] = r
end

--- @return its context; a table of its own where it has none, because nginx refused it or answers it by itself
function _M.get()
  return by_address[address()] or get_ctx()
end

--- The same in the log phase, which every request comes to that has one: from now on there may be another at its place.
function _M.take_away()
  local at = address()
  local r = by_address[at]
  if not r then
    return (get_ctx())
  end
  by_address[at] = nil
  return r
end

return _M
