--- A file as bytes in memory, mapped and not read: the kernel's own copy is looked at, and nothing is held.
-- Nobody may shorten the file while it is mapped; nginx's temporary files are written once.
local ffi = require "ffi"
local posix = require "tokenweir.posix"

local cast = ffi.cast
local pointer = ffi.typeof("const uint8_t *")

local _M = {}

--- Maps a file; a readable NUL stands behind its bytes.
-- @treturn table `p` (const uint8_t *) and `size`; or nil and what is wrong
function _M.open(path)
  local at, size, room = posix.map_to_read(path)
  if not at then
    return nil, size
  end
  return { at = at, room = room, p = cast(pointer, at), size = size }
end

--- Unmaps it; the pointer is dead from then on.
function _M.close(mapped)
  posix.unmap(mapped.at, mapped.room)
  mapped.p, mapped.size = nil, 0
end

return _M
