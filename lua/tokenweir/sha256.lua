--- SHA-256, by the OpenSSL that nginx itself is linked with.
local ffi = require "ffi"

ffi.cdef [[
unsigned char *SHA256(const unsigned char *data, size_t size, unsigned char *digest);
]]

local ffi_string = ffi.string
local digest = ffi.new("unsigned char[32]")

-- In the process already, or, where nginx hides its symbols, the system's library.
local function find()
  for _, where in ipairs { ffi.C, "crypto", "libcrypto.so.3", "libcrypto.so.1.1" } do
    local ok, library = true, where
    if type(where) == "string" then
      ok, library = pcall(ffi.load, where, true)
    end
    if ok and pcall(function() return library.SHA256 end) then
      return library
    end
  end
  error("tokenweir: OpenSSL's SHA256 is not to be found; API keys need it", 0)
end

local C = find()

local _M = {}

--- @return string of 32 bytes
function _M.bytes(text)
  C.SHA256(text, #text, digest)
  return ffi_string(digest, 32)
end

return _M
