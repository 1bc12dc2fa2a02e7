--- The few system calls that the gateway makes itself (Linux, x86-64 and arm64). It runs in worker threads and in tests
-- too, so there is no `ngx` here.
-- Every symbol has a name of its own, so that no other library's declaration can clash with it.
local ffi = require "ffi"

local C = ffi.C
local errno, str = ffi.errno, ffi.string
local tonumber = tonumber

ffi.cdef [[
typedef struct { short type, whence; long start, length; int pid; } tw_flock;
int tw_memfd_create(const char *name, unsigned int flags) __asm__("memfd_create");
int tw_open(const char *path, int flags, ...) __asm__("open");
int tw_close(int fd) __asm__("close");
int tw_unlink(const char *path) __asm__("unlink");
int tw_fcntl(int fd, int command, ...) __asm__("fcntl");
int tw_ftruncate(int fd, long length) __asm__("ftruncate");
long tw_pread(int fd, void *buffer, size_t count, long offset) __asm__("pread");
long tw_pwrite(int fd, const void *buffer, size_t count, long offset) __asm__("pwrite");
long tw_write(int fd, const void *from, size_t count) __asm__("write");
long tw_lseek(int fd, long offset, int whence) __asm__("lseek");
void *tw_mmap(void *at, size_t length, int protection, int flags, int fd, long offset) __asm__("mmap");
int tw_munmap(void *at, size_t length) __asm__("munmap");
int tw_mallopt(int parameter, int value) __asm__("mallopt");
int tw_usleep(unsigned int microseconds) __asm__("usleep");
typedef struct { uint64_t inode, offset; uint16_t length; uint8_t kind; char name[256]; } tw_dirent;
void *tw_opendir(const char *path) __asm__("opendir");
tw_dirent *tw_readdir(void *directory) __asm__("readdir");
int tw_closedir(void *directory) __asm__("closedir");
typedef struct {
  uint32_t mask, block; uint64_t attributes; uint32_t links, uid, gid; uint16_t mode, spare; uint64_t inode, size;
  uint64_t blocks, attributes_mask; struct { int64_t sec; uint32_t nsec; int32_t spare; } read, born, changed, written;
  uint64_t rest[16];
} tw_statx;
int tw_statx_of(int directory, const char *path, int flags, unsigned int mask, tw_statx *into) __asm__("statx");
char *tw_strerror(int number) __asm__("strerror");
]]

local O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_CLOEXEC = 0, 1, 2, 64, 128, 524288
local OWNER_ONLY = ffi.new("int", 384)
local EINTR = 4
local SEEK_END = 2
local AT_FDCWD, AT_SYMLINK_NOFOLLOW, STATX_BASIC = -100, 256, 0x7ff
local TYPE_BITS, REGULAR = 61440, 32768
local PROT_READ = 1
local MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS = 0x02, 0x10, 0x20
-- The largest page of these machines.
local PAGE = 65536
local F_SETLK = 6
local F_WRLCK, F_UNLCK = 1, 2
local PROT_READ_WRITE, MAP_SHARED = 3, 1
local MAP_FAILED = ffi.cast("void *", -1)

local lock = ffi.new("tw_flock")

-- malloc.h of glibc.
local M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3

local _M = {}

--- @return string the message of the last system call's error
local function last_error()
  return str(C.tw_strerror(errno()))
end

--- An anonymous file of zeros that lives as long as someone holds it open. It stays open over exec, so that a binary
-- upgrade of nginx finds it again.
-- @param name string, for people who look into /proc
-- @param directory string, where an unlinked file is made if the kernel refuses memory files
-- @param size bytes
-- @return number fd; or nil, err
function _M.anonymous_file(name, directory, size)
  local ok, fd = pcall(C.tw_memfd_create, name, 0)
  if not ok or fd < 0 then
    local path = directory .. "/." .. name .. "." .. tostring({}):match("%x+$")
    fd = C.tw_open(path, O_RDWR + O_CREAT + O_EXCL, OWNER_ONLY)
    if fd < 0 then
      return nil, "cannot make a memory file, nor " .. path .. ": " .. last_error()
    end
    C.tw_unlink(path)
  end
  if C.tw_ftruncate(fd, size) ~= 0 then
    local err = last_error()
    C.tw_close(fd)
    return nil, "cannot size the shared file to " .. size .. " bytes: " .. err
  end
  return fd
end

local function failed(what, path)
  return nil, "cannot " .. what .. " " .. path .. ": " .. last_error()
end

--- Opens a file, made with mode 0600 if it is not there; closed over exec.
local function open(path, flags, what)
  local fd = C.tw_open(path, flags + O_CLOEXEC, OWNER_ONLY)
  if fd < 0 then
    return failed(what, path)
  end
  return fd
end

--- Makes an empty file of mode 0600 that must not be there yet.
-- @return true; or nil, err
function _M.create(path)
  local fd, err = open(path, O_WRONLY + O_CREAT + O_EXCL, "create")
  if not fd then
    return nil, err
  end
  C.tw_close(fd)
  return true
end

--- @return number fd for writing to a file that is there; or nil, err
function _M.open_to_write(path)
  return open(path, O_WRONLY, "open")
end

--- Writes all of some bytes at the file's position.
-- @return true; or nil, err
function _M.write(fd, from, size)
  local done = 0
  while done < size do
    local count = tonumber(C.tw_write(fd, from + done, size - done))
    if count >= 0 then
      done = done + count
    elseif errno() ~= EINTR then
      return nil, last_error()
    end
  end
  return true
end

--- Removes a file, whether it is there or not.
function _M.unlink(path)
  C.tw_unlink(path)
end

--- The plain files of a folder, with the wall time of their last change.
-- @return list of { name, seconds }; empty where there is no folder
function _M.files(directory)
  local list, at, about = {}, C.tw_opendir(directory), ffi.new("tw_statx")
  if at == nil then
    return list
  end
  local entry = C.tw_readdir(at)
  while entry ~= nil do
    local name = str(entry.name)
    if C.tw_statx_of(AT_FDCWD, directory .. "/" .. name, AT_SYMLINK_NOFOLLOW, STATX_BASIC, about) == 0
      and bit.band(about.mode, TYPE_BITS) == REGULAR then
      list[#list + 1] = { name, tonumber(about.written.sec) }
    end
    entry = C.tw_readdir(at)
  end
  C.tw_closedir(at)
  return list
end

--- Maps a file to be read. A readable NUL stands behind its bytes: zeroed memory is mapped first, the file over its
-- beginning. Nobody may shorten the file meanwhile.
-- @return void *, bytes of the file, bytes to unmap; or nil, err
function _M.map_to_read(path)
  local fd, err = open(path, O_RDONLY, "open")
  if not fd then
    return nil, err
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
  return at, size, room
end

--- Opens a file for reading and writing, made with mode 0600 if it is not there; closed over exec.
-- @return number fd; or nil, err
function _M.open(path)
  return open(path, O_RDWR + O_CREAT, "open")
end

function _M.close(fd)
  C.tw_close(fd)
end

--- Reads into a buffer without moving the file's position.
-- @return number bytes read, < 0 on error
function _M.pread(fd, buffer, count, offset)
  return tonumber(C.tw_pread(fd, buffer, count, offset))
end

local function write_at(fd, text, offset)
  local done, size = 0, #text
  local from = ffi.cast("const char *", text)
  while done < size do
    local count = tonumber(C.tw_pwrite(fd, from + done, size - done, offset + done))
    if count <= 0 then
      return nil, last_error()
    end
    done = done + count
  end
  return true
end

--- Writes two strings, one after the other, in place of all that a file holds. Joining them first would take longer
-- than writing them, where one is large.
-- @return true; or nil, err
function _M.overwrite(fd, head, text)
  local ok, err = write_at(fd, head, 0)
  if ok then
    ok, err = write_at(fd, text, #head)
  end
  if not ok then
    return nil, err
  end
  if C.tw_ftruncate(fd, #head + #text) ~= 0 then
    return nil, last_error()
  end
  return true
end

--- Maps a file, shared and writable.
-- @return void *; or nil, err
function _M.map(fd, size)
  local at = C.tw_mmap(nil, size, PROT_READ_WRITE, MAP_SHARED, fd, 0)
  if at == MAP_FAILED then
    return nil, last_error()
  end
  return at
end

function _M.unmap(at, size)
  C.tw_munmap(at, size)
end

local function set_lock(fd, kind, byte)
  lock.type, lock.whence, lock.start, lock.length, lock.pid = kind, 0, byte, 1, 0
  return C.tw_fcntl(fd, F_SETLK, lock) == 0
end

--- Takes the write lock on one byte of a file unless another process has it. The kernel drops it when this process
-- ends, and also when this process closes any descriptor of that file.
-- @return boolean whether this process has it now
function _M.try_lock(fd, byte)
  return set_lock(fd, F_WRLCK, byte)
end

function _M.unlock(fd, byte)
  return set_lock(fd, F_UNLCK, byte)
end

function _M.sleep_us(microseconds)
  C.tw_usleep(microseconds)
end

local function keep_freed(bytes)
  C.tw_mallopt(M_MMAP_THRESHOLD, bytes)
  C.tw_mallopt(M_TRIM_THRESHOLD, bytes)
end

--- Lets this process keep freed memory of up to `bytes` for its next use. Else glibc gives it back after each large
-- request body and fetches it again for the next one, page by page: at 220 KB that is a fifth of a request's CPU.
-- Does nothing where the C library has no such setting.
function _M.keep_freed(bytes)
  pcall(keep_freed, bytes)
end

return _M
