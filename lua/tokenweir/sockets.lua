--- System calls on connections and names that nginx offers to nobody (Linux, x86-64 and arm64); see `posix.lua`.
local ffi = require "ffi"
local posix = require "tokenweir.posix"

local C = ffi.C
local str = ffi.string
local tonumber = tonumber

ffi.cdef [[
int tw_gethostname(char *name, size_t length) __asm__("gethostname");
int tw_dup(int fd) __asm__("dup");
int tw_shutdown(int fd, int how) __asm__("shutdown");
int tw_getsockname(int fd, void *address, unsigned int *length) __asm__("getsockname");
int tw_getpeername(int fd, void *address, unsigned int *length) __asm__("getpeername");
int tw_getsockopt(int fd, int level, int name, void *value, unsigned int *length) __asm__("getsockopt");
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
local SHUT_BOTH = 2
local IPPROTO_TCP, TCP_INFO, TCP_ESTABLISHED = 6, 11, 1
local ADDRESS_BYTES = 128
-- Of Linux's tcp_info, in words of 64 bits: tcpi_bytes_received, and how much of it is asked for.
local RECEIVED, INFO_BYTES = 16, 256

local end_address, end_length = ffi.new("uint8_t[?]", ADDRESS_BYTES), ffi.new("unsigned int[1]")

local info = ffi.new("uint64_t[?]", INFO_BYTES / 8)

local _M = {}

--- The descriptor that this process gets next, if no other thread takes it before: always the lowest free one.
-- @return number, or nil where there is none
function _M.next_descriptor()
  local fd = C.tw_dup(0)
  if fd < 0 then
    return nil
  end
  posix.close(fd)
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

--- Whether neither end of a TCP connection has closed it.
function _M.is_established(fd)
  end_length[0] = ADDRESS_BYTES
  return C.tw_getsockopt(fd, IPPROTO_TCP, TCP_INFO, end_address, end_length) == 0 and end_address[0] == TCP_ESTABLISHED
end

--- @return number of bytes that ever came on a TCP connection; nil where the kernel does not tell
function _M.received(fd)
  end_length[0] = INFO_BYTES
  if C.tw_getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, end_length) ~= 0 or end_length[0] < (RECEIVED + 1) * 8 then
    return nil
  end
  local bytes = tonumber(info[RECEIVED])
  return bytes > 0 and bytes or nil
end

--- Ends a connection in both directions; its descriptor stays with who owns it, who reads the end of the data.
function _M.shut_down(fd)
  C.tw_shutdown(fd, SHUT_BOTH)
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
