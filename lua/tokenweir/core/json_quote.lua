--- Where a JSON string ends: the first quote that no backslash escapes.
--
-- Prose is searched by libc at tens of bytes a nanosecond. Source code in JSON is full of `\"`, and stopping at each
-- costs about 8 ns: where they stand close, eight bytes at a time are looked at instead, without a branch on each.
local ffi = require "ffi"
local bit = require "bit"

ffi.cdef [[ const uint8_t *tw_strchrnul(const uint8_t *s, int c) __asm__("strchrnul"); ]]

local C = ffi.C
local band, bnot, bor, bxor = bit.band, bit.bnot, bit.bor, bit.bxor
local cast = ffi.cast
local words = ffi.typeof("const uint64_t *")

local QUOTE, BACKSLASH = 34, 92
local QUOTES, BACKSLASHES = 0x2222222222222222ULL, 0x5C5C5C5C5C5C5C5CULL
local ONES, LOW, HIGH = 0x0101010101010101ULL, 0x7F7F7F7F7F7F7F7FULL, 0x8080808080808080ULL

-- Quotes to see before judging how close they stand; below this many bytes each, words are faster than libc.
local LOOK_AFTER, CLOSE = 8, 32
-- How far words go before libc is tried again.
local STRETCH = 4096

local _M = {}

-- Whether the quote at `at` of a string that begins at `from` has an even number of backslashes before it.
local function is_bare(p, from, at)
  local back = at - 1
  while back >= from and p[back] == BACKSLASH do
    back = back - 1
  end
  return (at - back) % 2 == 1
end

-- First index in [i, stop) whose word holds a quote that might end the string, or a NUL; or an index not before `stop`.
-- `i - 2` and `stop + 7` must be readable.
local function suspect_word(p, i, stop)
  while i < stop do
    local word = cast(words, p + i)[0]
    local quote = bxor(word, QUOTES)
    local before = bxor(cast(words, p + i - 1)[0], BACKSLASHES)
    local two_before = bxor(cast(words, p + i - 2)[0], BACKSLASHES)
    -- High bits of bytes that are zero. The quick form also marks some bytes behind a zero: allowed where it only makes
    -- suspicious; "a backslash before" acquits, and needs the exact form.
    local is_quote = band(quote - ONES, bnot(quote))
    local escaped = bnot(bor(band(before, LOW) + LOW, before))
    local doubled = band(two_before - ONES, bnot(two_before))
    local nul = band(word - ONES, bnot(word))
    if band(bor(band(is_quote, bor(bnot(escaped), doubled)), nul), HIGH) ~= 0 then
      return i
    end
    i = i + 8
  end
  return i
end

-- The string began at `from`; nothing before `i` ends it. Goes a stretch by words. Returns the index of the closing
-- quote, or -1 less the index where to go on.
local function stretch_end(p, from, i, n)
  local stop = i + STRETCH
  if stop > n - 8 then
    stop = n - 8
  end
  while true do
    i = suspect_word(p, i, stop)
    if i >= stop then
      return -1 - i
    end
    for k = i, i + 7 do
      local c = p[k]
      if c == QUOTE and is_bare(p, from, k) then
        return k
      elseif c == 0 then
        return -1 - k
      end
    end
    i = i + 8
  end
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
        local at = stretch_end(p, from, q - p + 1, n)
        if at >= 0 then
          return at
        end
        q = p + (-1 - at) - 1
      end
      seen, mark = 0, q
    end
    q = C.tw_strchrnul(q + 1, QUOTE)
  end
  return -1
end

--- Index of the quote that ends the string whose first byte (after the opening quote) is at `i`.
-- @param p const uint8_t *, with a quote at `i - 1`, readable in [0, n], `p[n] == 0`
-- @treturn number or -1 when the string does not end or holds a NUL
function _M.string_end(p, i, n)
  local q = C.tw_strchrnul(p + i, QUOTE)
  if q[-1] ~= BACKSLASH then
    if q[0] == QUOTE then
      return q - p
    end
    return -1
  end
  return escaped_end(p, i, q, n)
end

return _M
