--- How many tokens a text has, from the kinds of its bytes and of those before them: the start of a word, a second
-- digit, a character of Chinese weigh differently. It costs some nanoseconds a byte, so both ends are read and the
-- rest is taken to be like them.
--
-- The inside of a JSON string is read as it stands in the body; escapes count as what they stand for.
local bit = require "bit"
local ffi = require "ffi"
local bytes_of = require "tokenweir.core.bytes"
local fixed_array = require "tokenweir.core.fixed_array"

local band, lshift, rshift, tobit = bit.band, bit.lshift, bit.rshift, bit.tobit
local cast, copy = ffi.cast, ffi.copy
local find = bytes_of.find
local whole, word = ffi.typeof("int32_t *"), ffi.typeof("uint64_t *")

local _M = {}

--- Kinds of bytes: of ASCII, and by their place in a character of UTF-8.
local SPACE, LOWER, UPPER, DIGIT, MARK, BRACKET, LINE, NEXT, TWO, THREE, FOUR = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local KINDS = 11
local ESCAPE = 11
_M.KINDS = KINDS

--- Bytes that are read at each end.
local END = 160

local BACKSLASH, U = 92, 117

local kind_of = fixed_array.new("uint8_t", 256)
for c = 0, 255 do
  kind_of[c] = c == 32 and SPACE or c < 32 and LINE or c < 128 and MARK
    or c < 0xC0 and NEXT or c < 0xE0 and TWO or c < 0xF0 and THREE or FOUR
end
for kind, pattern in pairs { [LOWER] = "%l", [UPPER] = "%u", [DIGIT] = "%d" } do
  for c = 0, 127 do
    if string.char(c):find(pattern) then
      kind_of[c] = kind
    end
  end
end
for bracket in ("{}[]()<>=;_#/*+|&^%$@~`"):gmatch(".") do
  kind_of[bracket:byte()] = BRACKET
end
kind_of[BACKSLASH] = ESCAPE

-- What the letter behind a backslash stands for.
local escaped = fixed_array.new("uint8_t", 256)
for c = 0, 255 do
  escaped[c] = MARK
end
for letter in ("nrtbf"):gmatch(".") do
  escaped[letter:byte()] = LINE
end

--- Thousandths of a token by the kinds of a byte (columns) and of the one before (rows), as OpenAI's cl100k has it: a
-- least-squares fit to 6,772 prompts (`model/prompt_tokens.py` prints it).
local WEIGHTS = {
  { 115, 941, 936, 1707, 1249, 981, 354, 0, 803, 1188, 2000 },
  { 0, 21, 66, 853, 936, 686, 875, 0, 682, 949, 2000 },
  { 0, 159, 104, 819, 896, 834, 611, 0, 669, 1107, 2000 },
  { 447, 1045, 927, 187, 1016, 1048, 965, 0, 589, 1100, 2000 },
  { 153, 289, 468, 901, 195, 371, 20, 0, 598, 1072, 2000 },
  { 94, 430, 414, 915, 411, 201, 253, 0, 600, 1100, 2000 },
  { 297, 788, 852, 526, 1121, 858, 0, 0, 600, 1089, 2000 },
  { 75, 388, 731, 799, 949, 900, 582, 0, 388, 1090, 2000 },
  { 0, 0, 0, 0, 0, 0, 0, 178, 0, 0, 0 },
  { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 },
  { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 },
}

-- What stands where there is no text: it weighs nothing, and what follows it begins anew.
local NONE, NOTHING = 12, 0

-- Whole numbers: their sums take a quarter of the time that those of doubles take. One is found by what stands in
-- `row_of` for the byte before and in `column_of` for the byte: offsets, so that only a sum is to be reckoned.
local CELL, ROW = 4, 16 * 4
local weights = cast("uint8_t *", fixed_array.new("int32_t", 16 * 16))
for row, list in ipairs(WEIGHTS) do
  for column, value in ipairs(list) do
    cast(whole, weights + ROW * (row - 1) + CELL * (column - 1))[0] = value
  end
end
local row_of, column_of = fixed_array.new("uint16_t", 256), fixed_array.new("uint8_t", 256)
-- A byte of each kind.
local like = fixed_array.new("uint8_t", 16)
for c = 255, 0, -1 do
  row_of[c], column_of[c], like[kind_of[c]] = ROW * kind_of[c], CELL * kind_of[c], c
end
row_of[NOTHING], column_of[NOTHING], like[LINE] = ROW * SPACE, CELL * NONE, 10

local function hex(c)
  return band(c, 15) + 9 * rshift(c, 6)
end

-- The kind of what the escape at `i` stands for, and the index behind it.
local function escape(p, i, last)
  local letter = p[i + 1]
  if letter ~= U then
    return escaped[letter], i + 2
  elseif i + 6 > last then
    return MARK, last
  end
  local point = lshift(hex(p[i + 2]), 12) + lshift(hex(p[i + 3]), 8) + lshift(hex(p[i + 4]), 4) + hex(p[i + 5])
  if point < 128 then
    return kind_of[point] == ESCAPE and MARK or kind_of[point], i + 6
  elseif point < 0x800 then
    return TWO, i + 6
  elseif point >= 0xDC00 and point < 0xE000 then
    return NEXT, i + 6          -- the second half of what FOUR begins
  end
  return point >= 0xD800 and point < 0xDC00 and FOUR or THREE, i + 6
end

-- Bytes of UTF-8 behind the first one, by what an escape stands for.
local FOLLOWED = { [TWO] = 1, [THREE] = 2, [FOUR] = 1, [NEXT] = 1 }

-- The text whose tokens are counted, each escape by bytes of the kinds that it stands for.
local text = fixed_array.new("uint8_t", 2 * END + 16)

-- Writes to `text`, from `n` on, what the escape at `i` stands for. Returns where it ends there, and in `p`.
local function unescape(n, p, i, last)
  local kind, after = escape(p, i, last)
  text[n] = like[kind]
  if kind < NEXT then
    return n + 1, after
  end
  -- Two of them; the second is written over by what follows, if it is not meant.
  text[n + 1], text[n + 2] = like[NEXT], like[NEXT]
  return n + 1 + FOLLOWED[kind], after
end

-- Writes what stands at `[i, last)` to `text`, from `n` on. Returns where it ends there, and how far the last escape
-- reached beyond `last`.
local function put(n, p, i, last)
  local at = find(p, BACKSLASH, i, last)
  while at >= 0 do
    copy(text + n, p + i, at - i)
    n, i = n + at - i, at
    -- Often several in a row.
    repeat
      n, i = unescape(n, p, i, last)
    until i >= last or p[i] ~= BACKSLASH
    at = find(p, BACKSLASH, i, last)
  end
  if i < last then
    copy(text + n, p + i, last - i)
    return n + last - i, 0
  end
  return n, i - last
end

local function weight(row, column)
  return cast(whole, weights + row + column)[0]
end

local function pair(before, row, one, two)
  return tobit(weight(before, column_of[one]) + weight(row, column_of[two]))
end

-- Thousandths of a token of the first `n` bytes of `text`, eight at a time.
local function count(n)
  cast(word, text + n)[0] = NOTHING
  local tokens, before = 0, row_of[NOTHING]
  for j = 0, n - 1, 8 do
    local t = text + j
    local a, b, c, d, e, f, g, h = t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7]
    local sum = tobit(pair(before, row_of[a], a, b) + pair(row_of[b], row_of[c], c, d))
    sum = tobit(sum + tobit(pair(row_of[d], row_of[e], e, f) + pair(row_of[f], row_of[g], g, h)))
    tokens, before = tobit(tokens + sum), row_of[h]
  end
  return tokens
end

--- Tokens per byte of UTF-8 of the inside `[first, last)` of a JSON string; `default` where there is nothing.
-- @param p const uint8_t *
function _M.per_byte(p, first, last, default)
  local n, over, bytes
  if last - first <= 2 * END then
    n, over = put(0, p, first, last)
    bytes = n - over
  else
    n, over = put(0, p, first, first + END)
    text[n] = NOTHING
    bytes = -1 - over
    n, over = put(n + 1, p, last - END, last)
    bytes = bytes + n - over
  end
  return bytes > 0 and count(n) / bytes / 1000 or default
end

--- The kind of a byte, for the fit.
function _M.kind(c)
  return c == BACKSLASH and MARK or kind_of[c]
end

return _M
