--- XXH64: the 64-bit xxHash, as its specification has it (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
-- Fast and well spread, not cryptographic: whoever may choose the input can find collisions for a known seed.
local ffi = require "ffi"
local bit = require "bit"
local bytes = require "tokenweir.core.bytes"
local fixed_array = require "tokenweir.core.fixed_array"

local band, bxor, rol, rshift, tohex = bit.band, bit.bxor, bit.rol, bit.rshift, bit.tohex
local cast, copy = ffi.cast, ffi.copy
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

-- What is hashed, the lanes and the hash while they are reckoned: LuaJIT makes an object of each pointer and 64-bit
-- number that is a variable where a loop begins.
local source, lane, state = ffi.new("const uint8_t *[1]"), fixed_array.new("uint64_t", 4), ffi.new("uint64_t[1]")

-- What is left of the bytes, and what all of it can be read beyond them.
local tail = fixed_array.new("uint8_t", 40)
local tail_words = ffi.cast("const uint64_t *", tail)
-- For -2 .. 3, at 0 .. 5: all ones where it is more than 0.
local mask = fixed_array.new("uint64_t", 6, { 0, 0, 0, -1ULL, -1ULL, -1ULL })

local kept = { false }

local function round(value, word)
  return rol(value + word * P2, 31) * P1
end

local function merge(hash, value)
  return bxor(hash, round(0ULL, value)) * P1 + P4
end

-- Four independent lanes over whole stripes of 32 bytes; begins with the seed in `state`.
local function stripes(n)
  lane[0], lane[1], lane[2], lane[3] = state[0] + P1 + P2, state[0] + P2, state[0], state[0] - P1
  for i = 0, n - 32, 32 do
    local w = cast(words, source[0] + i)
    lane[0], lane[1] = round(lane[0], w[0]), round(lane[1], w[1])
    lane[2], lane[3] = round(lane[2], w[2]), round(lane[3], w[3])
  end
  local hash = rol(lane[0], 1) + rol(lane[1], 7) + rol(lane[2], 12) + rol(lane[3], 18)
  state[0] = merge(merge(merge(merge(hash, lane[0]), lane[1]), lane[2]), lane[3])
end

-- `new` where `ones` is all ones, `old` where it is 0.
local function choose(old, new, ones)
  return (bxor(old, band(bxor(old, new), ones)))
end

local function with_word(hash, word, ones)
  return (choose(hash, rol(bxor(hash, round(0ULL, word)), 27) * P1 + P4, ones))
end

local function with_byte(hash, byte, ones)
  return (choose(hash, rol(bxor(hash, u64(byte) * P5), 11) * P1, ones))
end

-- What is left behind the stripes: words, a half of one, bytes. All that there could be is reckoned, and what is not
-- there left out of the hash by a mask: loops of a round or two, or a branch for each length, LuaJIT would not compile,
-- or over and over.
local function rest(i, n)
  local left = n - i
  copy(tail, source[0] + i, left)
  local count, half, single = rshift(left, 3), band(rshift(left, 2), 1), band(left, 3)
  local hash = state[0]
  hash = with_word(hash, tail_words[0], mask[count + 2])
  hash = with_word(hash, tail_words[1], mask[count + 1])
  hash = with_word(hash, tail_words[2], mask[count])
  local at = 8 * count
  hash = choose(hash, rol(bxor(hash, u64(cast(halves, tail + at)[0]) * P1), 23) * P2 + P3, mask[half + 2])
  at = at + 4 * half
  hash = with_byte(hash, tail[at], mask[single + 2])
  hash = with_byte(hash, tail[at + 1], mask[single + 1])
  state[0] = with_byte(hash, tail[at + 2], mask[single])
end

-- The hash of `n` bytes at `source`, by the seed in `state`.
local function run(n)
  if n >= 32 then
    stripes(n)
  else
    state[0] = state[0] + P5
  end
  state[0] = state[0] + u64(n)
  rest(n - n % 32, n)
  local hash = state[0]
  hash = bxor(hash, rshift(hash, 33)) * P2
  hash = bxor(hash, rshift(hash, 29)) * P3
  state[0] = bxor(hash, rshift(hash, 32))
end

--- For `feed`: the seed before, the hash after (uint64_t[1]). What is read from it is best written where it stays, or
-- made numbers of, at once.
_M.state = state

--- Hashes the `n` bytes of `p` from `first` on, by the seed in `state`, where the hash is then.
-- @param p const uint8_t *
function _M.feed(p, first, n)
  source[0] = p + first
  run(n)
end

--- The same of a Lua string.
function _M.feed_string(s)
  -- The pointer does not keep the string from being collected, nor does an argument that is not used any more.
  kept[1] = s
  source[0] = bytes.of(kept[1])
  run(#s)
  kept[1] = false
end

--- Hash of the `n` bytes at `p`.
-- @param p const uint8_t *
-- @tparam number n
-- @param[opt] seed number or uint64_t
-- @return uint64_t
function _M.bytes(p, n, seed)
  state[0] = seed or 0
  _M.feed(p, 0, n)
  return state[0]
end

--- Hash of a Lua string. @return uint64_t
function _M.string(s, seed)
  state[0] = seed or 0
  _M.feed_string(s)
  return state[0]
end

--- The 16 lower-case hex digits of a hash.
function _M.hex(hash)
  return (tohex(hash))
end

--- The hash of 16 hex digits.
-- @return uint64_t
function _M.from_hex(digits)
  return u64(tonumber(sub(digits, 1, 8), 16)) * 0x100000000ULL + tonumber(sub(digits, 9, 16), 16)
end

return _M
