--- The few system calls that the shared region and the disk copy need (Linux, x86-64 and arm64).
-- Every symbol has a name of its own here, so that no other library's declaration can clash with it.
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
void *tw_mmap(void *at, size_t length, int protection, int flags, int fd, long offset) __asm__("mmap");
int tw_munmap(void *at, size_t length) __asm__("munmap");
int tw_usleep(unsigned int microseconds) __asm__("usleep");
int tw_gethostname(char *name, size_t length) __asm__("gethostname");
int tw_dup(int fd) __asm__("dup");
int tw_shutdown(int fd, int how) __asm__("shutdown");
int tw_getsockname(int fd, void *address, unsigned int *length) __asm__("getsockname");
int tw_getpeername(int fd, void *address, unsigned int *length) __asm__("getpeername");
char *tw_strerror(int number) __asm__("strerror");
typedef struct tw_addrinfo {
  int flags, family, kind, protocol; unsigned int length; void *address; char *name; struct tw_addrinfo *next;
} tw_addrinfo;
int tw_getaddrinfo(const char *name, const char *port, const tw_addrinfo *hints, tw_addrinfo **out)
  __asm__("getaddrinfo");
void tw_freeaddrinfo(tw_addrinfo *list) __asm__("freeaddrinfo");
int tw_getnameinfo(const void *address, unsigned int length, char *name, unsigned int name_length, char *port,
  unsigned int port_length, int flags) __asm__("getnameinfo");
]]

local SOCK_STREAM, NI_NUMERICHOST = 1, 1
local O_RDWR, O_CREAT, O_EXCL, O_CLOEXEC = 2, 64, 128, 524288
local F_SETLK = 6
local F_WRLCK, F_UNLCK = 1, 2
local PROT_READ_WRITE, MAP_SHARED = 3, 1
local MAP_FAILED = ffi.cast("void *", -1)

local SHUT_BOTH = 2
local ADDRESS_BYTES = 128

local lock = ffi.new("tw_flock")
local end_address, end_length = ffi.new("uint8_t[?]", ADDRESS_BYTES), ffi.new("unsigned int[1]")

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
    fd = C.tw_open(path, O_RDWR + O_CREAT + O_EXCL, ffi.cast("int", 384))
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

--- Opens a file for reading and writing, made with mode 0600 if it is not there; closed over exec.
-- @return number fd; or nil, err
function _M.open(path)
  local fd = C.tw_open(path, O_RDWR + O_CREAT + O_CLOEXEC, ffi.cast("int", 384))
  if fd < 0 then
    return nil, path .. ": " .. last_error()
  end
  return fd
end

function _M.close(fd)
  C.tw_close(fd)
end

--- Reads into a buffer without moving the file's position.
-- @return number bytes read, < 0 on error
function _M.pread(fd, buffer, count, offset)
  return tonumber(C.tw_pread(fd, buffer, count, offset))
end

--- Writes a whole string at an offset and cuts the file behind it.
-- @return true; or nil, err
function _M.overwrite(fd, text)
  local done, size = 0, #text
  local from = ffi.cast("const char *", text)
  while done < size do
    local count = tonumber(C.tw_pwrite(fd, from + done, size - done, done))
    if count <= 0 then
      return nil, last_error()
    end
    done = done + count
  end
  if C.tw_ftruncate(fd, size) ~= 0 then
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

--- The descriptor that this process gets next, if no other thread takes it before: always the lowest free one.
-- @return number, or nil where there is none
function _M.next_descriptor()
  local fd = C.tw_dup(0)
  if fd < 0 then
    return nil
  end
  C.tw_close(fd)
  return fd
end

local function name_of(get, fd)
  end_length[0] = ADDRESS_BYTES
  if get(fd, end_address, end_length) ~= 0 then
    return nil
  end
  return str(end_address, end_length[0])
end

--- What tells a TCP connection from every other one: both of its ends.
-- @return string of bytes and the port of the far end; or nil where the descriptor is no connection
function _M.endpoints(fd)
  local near, far = name_of(C.tw_getsockname, fd), name_of(C.tw_getpeername, fd)
  if not near or not far or #far < 4 then
    return nil
  end
  return near .. far, far:byte(3) * 256 + far:byte(4)
end

--- Ends a connection in both directions; its descriptor stays with who owns it, who reads the end of the data.
function _M.shut_down(fd)
  C.tw_shutdown(fd, SHUT_BOTH)
end

function _M.sleep_us(microseconds)
  C.tw_usleep(microseconds)
end

--- @return string the host's name, or "localhost"
function _M.hostname()
  local name = ffi.new("char[?]", 256)
  if C.tw_gethostname(name, 255) ~= 0 then
    return "localhost"
  end
  return str(name)
end

--- Looks a name up as the system does (hosts file, then DNS); it blocks, so only where that does no harm.
-- @return string the IP address, an IPv6 one in brackets; or nil
function _M.resolve(host)
  local hints, out = ffi.new("tw_addrinfo"), ffi.new("tw_addrinfo *[1]")
  hints.kind = SOCK_STREAM
  if C.tw_getaddrinfo(host, nil, hints, out) ~= 0 then
    return nil
  end
  local name = ffi.new("char[?]", 64)
  local found = C.tw_getnameinfo(out[0].address, out[0].length, name, 64, nil, 0, NI_NUMERICHOST) == 0
  C.tw_freeaddrinfo(out[0])
  if not found then
    return nil
  end
  local address = str(name)
  return address:find(":", 1, true) and "[" .. address .. "]" or address
end

return _M
