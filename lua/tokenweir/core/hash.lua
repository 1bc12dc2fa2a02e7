--- XXH64: the 64-bit xxHash, as its specification has it (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
-- Fast and well spread, not cryptographic: whoever may choose the input can find collisions for a known seed.
local ffi = require "ffi"
local bit = require "bit"
local bytes = require "tokenweir.core.bytes"

local bxor, rol, rshift, tohex = bit.bxor, bit.rol, bit.rshift, bit.tohex
local cast = ffi.cast
local sub, tonumber = string.sub, tonumber

local words = ffi.typeof("const uint64_t *")
local halves = ffi.typeof("const uint32_t *")
local u64 = ffi.typeof("uint64_t")

local P1 = 0x9E3779B185EBCA87ULL
local P2 = 0xC2B2AE3D27D4EB4FULL
local P3 = 0x165667B19E3779F9ULL
local P4 = 0x85EBCA77C2B2AE63ULL
local P5 = 0x27D4EB2F165667C5ULL

local _M = {}

local function round(lane, word)
  return rol(lane + word * P2, 31) * P1
end

local function merge(hash, lane)
  return bxor(hash, round(0ULL, lane)) * P1 + P4
end

-- Four independent lanes over whole stripes of 32 bytes.
local function stripes(p, n, seed)
  local a, b, c, d = seed + P1 + P2, seed + P2, seed + 0ULL, seed - P1
  for i = 0, n - 32, 32 do
    local w = cast(words, p + i)
    a = round(a, w[0])
    b = round(b, w[1])
    c = round(c, w[2])
    d = round(d, w[3])
  end
  local hash = rol(a, 1) + rol(b, 7) + rol(c, 12) + rol(d, 18)
  return merge(merge(merge(merge(hash, a), b), c), d)
end

--- Hash of the `n` bytes at `p`.
-- @param p const uint8_t *
-- @tparam number n
-- @param[opt] seed number or uint64_t
-- @return uint64_t
function _M.bytes(p, n, seed)
  seed = u64(seed or 0)
  local hash
  if n >= 32 then
    hash = stripes(p, n, seed)
  else
    hash = seed + P5
  end
  hash = hash + u64(n)
  local i = n - n % 32
  while i + 8 <= n do
    hash = rol(bxor(hash, round(0ULL, cast(words, p + i)[0])), 27) * P1 + P4
    i = i + 8
  end
  if i + 4 <= n then
    hash = rol(bxor(hash, u64(cast(halves, p + i)[0]) * P1), 23) * P2 + P3
    i = i + 4
  end
  while i < n do
    hash = rol(bxor(hash, u64(p[i]) * P5), 11) * P1
    i = i + 1
  end
  hash = bxor(hash, rshift(hash, 33)) * P2
  hash = bxor(hash, rshift(hash, 29)) * P3
  return bxor(hash, rshift(hash, 32))
end

--- Hash of a Lua string. @return uint64_t
function _M.string(s, seed)
  return _M.bytes(bytes.of(s), #s, seed)
end

--- The 16 lower-case hex digits of a hash.
function _M.hex(hash)
  return tohex(hash)
end

--- The hash of 16 hex digits.
-- @return uint64_t
function _M.from_hex(digits)
  return u64(tonumber(sub(digits, 1, 8), 16)) * 0x100000000ULL + tonumber(sub(digits, 9, 16), 16)
end

return _M
