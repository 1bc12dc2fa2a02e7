--- Where a JSON string ends: the first quote that no backslash escapes.
--
-- Prose is searched by libc at tens of bytes a nanosecond. Source code in JSON is full of `\"`, and stopping at each
-- costs about 8 ns: where they stand close, eight bytes at a time are looked at instead, without a branch on each.
local ffi = require "ffi"
local bit = require "bit"
local bytes = require "tokenweir.core.bytes"
local fixed_array = require "tokenweir.core.fixed_array"

ffi.cdef [[ const uint8_t *tw_strchrnul(const uint8_t *s, int c) __asm__("strchrnul"); ]]

local band, bnot, bor, bxor, lshift, rshift = bit.band, bit.bnot, bit.bor, bit.bxor, bit.lshift, bit.rshift
local tonumber = tonumber
local cast = ffi.cast
local strchrnul = ffi.C.tw_strchrnul
local find = bytes.find
local words, int = ffi.typeof("const uint64_t *"), ffi.typeof("int32_t")

local QUOTE, BACKSLASH = 34, 92
local QUOTES, BACKSLASHES = 0x2222222222222222ULL, 0x5C5C5C5C5C5C5C5CULL
local LOW = 0x7F7F7F7F7F7F7F7FULL
-- Gathers the lowest bits of eight bytes into the highest byte.
local GATHER = 0x0102040810204080ULL

-- Quotes to see before judging how close they stand; below this many bytes each, words are faster than libc.
local LOOK_AFTER, CLOSE = 8, 20
-- How far words go before libc is tried again.
local STRETCH = 4096

-- By the backslashes among eight bytes (a bit each), plus 256 if the byte before escapes: which bytes are escaped (bits
-- 0 to 7), and whether the last one escapes the byte that follows (bit 8).
local ESCAPED = fixed_array.new("int32_t", 512)
for before = 0, 1 do
  for backslashes = 0, 255 do
    local escaped, escapes = 0, before == 1
    for k = 0, 7 do
      local at = lshift(1, k)
      if escapes then
        escaped, escapes = escaped + at, false
      else
        escapes = band(backslashes, at) ~= 0
      end
    end
    ESCAPED[before * 256 + backslashes] = escaped + (escapes and 256 or 0)
  end
end

-- The place of the lowest bit of a byte.
local LOWEST = fixed_array.new("uint8_t", 256)
for mask = 1, 255 do
  local k = 0
  while band(mask, lshift(1, k)) == 0 do
    k = k + 1
  end
  LOWEST[mask] = k
end

local _M = {}

-- A bit for each byte of the word that is zero.
local function zero_bytes(word)
  local high = bnot(bor(band(word, LOW) + LOW, word, LOW))
  return (tonumber(cast(int, rshift(rshift(high, 7) * GATHER, 56))))
end

-- Looks for a bare quote from `i` on, where no escape reaches over. Returns its index, or -1 less the index (not before
-- `stop`) where to go on. `stop + 7` must be readable.
local function words_end(p, i, stop)
  local before = 0
  while i < stop do
    local word = cast(words, p + i)[0]
    local escaped = ESCAPED[before + zero_bytes(bxor(word, BACKSLASHES))]
    local bare = band(zero_bytes(bxor(word, QUOTES)), bnot(escaped))
    if bare ~= 0 then
      return i + LOWEST[bare]
    end
    before = band(escaped, 256)
    i = i + 8
  end
  return -1 - (before == 0 and i or i + 1)
end

-- As `words_end`, for one stretch; a NUL in it ends the search at `n`.
local function stretch_end(p, i, n)
  local stop = i + STRETCH
  if stop > n - 8 then
    stop = n - 8
  end
  local at = words_end(p, i, stop)
  if find(p, 0, i, at < 0 and -1 - at or at) >= 0 then
    return -1 - n
  end
  return at
end

-- Whether the quote at `at` of a string that begins at `from` has an even number of backslashes before it.
local function is_bare(p, from, at)
  local back = at - 1
  while back >= from and p[back] == BACKSLASH do
    back = back - 1
  end
  return (at - back) % 2 == 1
end

local function escaped_end(p, from, q, n)
  local seen, mark = 0, q
  while q[0] == QUOTE do
    -- A single backslash, as nearly all are, takes no inner loop (it would end the trace).
    if q[-1] ~= BACKSLASH or q[-2] == BACKSLASH and is_bare(p, from, q - p) then
      return q - p
    end
    seen = seen + 1
    if seen == LOOK_AFTER then
      if q - mark < LOOK_AFTER * CLOSE then
        local at = stretch_end(p, q - p + 1, n)
        if at >= 0 then
          return at
        end
        q = p + (-1 - at) - 1
      end
      seen, mark = 0, q
    end
    q = strchrnul(q + 1, QUOTE)
  end
  return -1
end

--- Index of the quote that ends the string whose first byte (after the opening quote) is at `i`.
-- @param p const uint8_t *, with a quote at `i - 1`, readable in [0, n], `p[n] == 0`
-- @treturn number or -1 when the string does not end or holds a NUL
function _M.string_end(p, i, n)
  local q = strchrnul(p + i, QUOTE)
  if q[-1] ~= BACKSLASH then
    if q[0] == QUOTE then
      return q - p
    end
    return -1
  end
  return escaped_end(p, i, q, n)
end

return _M
