--- The request's body in memory, without a Lua string of it: a string is hashed, and one of some hundred KB costs more
-- in fresh pages than all that is then done with it.
local ffi = require "ffi"
local variable = require("tokenweir.variable").bytes

local ffi_copy, ffi_new = ffi.copy, ffi.new

local FIRST = 64 * 1024

local copy, capacity = nil, 0

local _M = {}

--- Copies the body into memory that all requests of this worker share, with a NUL behind it.
-- To be called after `ngx.req.read_body`. Nginx has it in one piece where `client_body_in_single_buffer` is on.
-- @return uint8_t * valid until the next call, its size; nil when there is no body, or when it is in a file
function _M.get()
  local p, size = variable("request_body")
  if not p then
    return nil
  end
  if size >= capacity then
    capacity = capacity > 0 and capacity or FIRST
    while capacity <= size do
      capacity = capacity * 2
    end
    copy = ffi_new("uint8_t[?]", capacity)
  end
  ffi_copy(copy, p, size)
  copy[size] = 0
  return copy, size
end

return _M
