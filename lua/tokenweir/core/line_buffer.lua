--- A growing byte buffer, with a NUL behind what it holds so that the JSON scan may read there.
local ffi = require "ffi"

local setmetatable = setmetatable
local ffi_new, ffi_copy = ffi.new, ffi.copy

local FIRST = 2048
-- A buffer beyond this is given back when it is cleared: most streams never need it.
local KEPT = 64 * 1024

local _M = {}

--- No stream makes a gateway hold more than this for it: what is longer is marked `overflowed` and forgotten.
local LIMIT = 4 * 1024 * 1024
_M.LIMIT = LIMIT

local Buffer = {}
Buffer.__index = Buffer

--- An empty buffer. Fields to read: `p` (uint8_t *), `size`, `overflowed`.
function _M.new()
  return setmetatable({ p = nil, size = 0, capacity = 0, overflowed = false }, Buffer)
end

function Buffer:clear()
  self.size, self.overflowed = 0, false
  if self.capacity > KEPT then
    self.p, self.capacity = nil, 0
  end
end

--- Adds `n` bytes from `source` (a pointer or a Lua string).
function Buffer:append(source, n)
  local size = self.size + n
  if self.overflowed or size > LIMIT then
    self.overflowed, self.size = true, 0
    return
  end
  if size >= self.capacity then
    local capacity = self.capacity > 0 and self.capacity or FIRST
    while capacity <= size do
      capacity = capacity * 2
    end
    local grown = ffi_new("uint8_t[?]", capacity)
    if self.size > 0 then
      ffi_copy(grown, self.p, self.size)
    end
    self.p, self.capacity = grown, capacity
  end
  ffi_copy(self.p + self.size, source, n)
  self.p[size] = 0
  self.size = size
end

-- The same as functions: a method is looked up in the buffer, then in what all buffers are like.
_M.append, _M.clear = Buffer.append, Buffer.clear

return _M
