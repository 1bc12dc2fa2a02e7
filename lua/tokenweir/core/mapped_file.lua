--- A file as bytes in memory, mapped and not read: the kernel's own copy is looked at, and nothing is held.
-- Nobody may shorten the file while it is mapped; nginx's temporary files are written once.
local ffi = require "ffi"

local format, tonumber = string.format, tonumber
local cast, ffi_string = ffi.cast, ffi.string

ffi.cdef [[
int tw_open(const char *path, int flags, ...) __asm__("open");
int tw_close(int fd) __asm__("close");
long tw_lseek(int fd, long offset, int whence) __asm__("lseek");
void *tw_mmap(void *at, size_t n, int protection, int flags, int fd, long offset) __asm__("mmap");
int tw_munmap(void *at, size_t n) __asm__("munmap");
char *tw_strerror(int code) __asm__("strerror");
]]

local C = ffi.C

-- Linux on 64-bit machines.
local O_RDONLY, O_CLOEXEC = 0, 0x80000
local SEEK_END = 2
local PROT_READ = 1
local MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS = 0x02, 0x10, 0x20
local MAP_FAILED = cast("void *", -1)
-- The largest page of these machines.
local PAGE = 65536

local pointer = ffi.typeof("const uint8_t *")

local _M = {}

--- nil and a message that names the file and the last error of the system.
function _M.failed(what, path)
  return nil, format("cannot %s %s: %s", what, path, ffi_string(C.tw_strerror(ffi.errno())))
end
local failed = _M.failed

--- Maps a file. A readable NUL stands behind its bytes: zeroed memory is mapped first, the file over its beginning.
-- @treturn table `p` (const uint8_t *) and `size`; or nil and what is wrong
function _M.open(path)
  local fd = C.tw_open(path, O_RDONLY + O_CLOEXEC)
  if fd < 0 then
    return failed("open", path)
  end
  local size = tonumber(C.tw_lseek(fd, 0, SEEK_END))
  if size < 0 then
    C.tw_close(fd)
    return failed("measure", path)
  end
  local room = size - size % PAGE + PAGE
  local at = C.tw_mmap(nil, room, PROT_READ, MAP_PRIVATE + MAP_ANONYMOUS, -1, 0)
  if at ~= MAP_FAILED and size > 0
    and C.tw_mmap(at, size, PROT_READ, MAP_PRIVATE + MAP_FIXED, fd, 0) == MAP_FAILED then
    C.tw_munmap(at, room)
    at = MAP_FAILED
  end
  C.tw_close(fd)
  if at == MAP_FAILED then
    return failed("map", path)
  end
  return { at = at, room = room, p = cast(pointer, at), size = size }
end

--- Unmaps it; the pointer is dead from then on.
function _M.close(mapped)
  C.tw_munmap(mapped.at, mapped.room)
  mapped.p, mapped.size = nil, 0
end

return _M
