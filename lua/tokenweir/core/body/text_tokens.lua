--- How many tokens a text has, from the kinds of its bytes and of those before them: the start of a word, a second
-- digit, a character of Chinese weigh differently. It costs some nanoseconds a byte, so both ends are read and the
-- rest is taken to be like them.
--
-- The inside of a JSON string is read as it stands in the body; escapes count as what they stand for.
local bit = require "bit"
local fixed_array = require "tokenweir.core.fixed_array"

local band, bor, lshift, rshift, tobit = bit.band, bit.bor, bit.lshift, bit.rshift, bit.tobit

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

-- Whole numbers: their sums take a quarter of the time that those of doubles take.
local weights = fixed_array.new("int32_t", 16 * 16)
for row, list in ipairs(WEIGHTS) do
  for column, value in ipairs(list) do
    weights[16 * (row - 1) + column - 1] = value
  end
end

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

-- In thousandths, and bytes of UTF-8.
local found = { tokens = 0, bytes = 0 }

local function read(p, i, last)
  local kinds, weight_of = kind_of, weights
  local tokens, bytes, before = 0, last - i, SPACE
  while i < last do
    local at = last
    for j = i, last - 1 do
      local kind = kinds[p[j]]
      if kind == ESCAPE then
        at = j
        break
      end
      tokens = tobit(tokens + weight_of[bor(lshift(before, 4), kind)])
      before = kind
    end
    i = at
    if i < last then
      local kind, after = escape(p, i, last)
      bytes = bytes - (after - i) + 1
      i = after
      tokens = tokens + weight_of[16 * before + kind]
      before = kind
      if kind >= NEXT then
        local more = FOLLOWED[kind]
        tokens = tokens + weight_of[16 * kind + NEXT] + (more - 1) * weight_of[16 * NEXT + NEXT]
        bytes, before = bytes + more, NEXT
      end
    end
  end
  found.tokens, found.bytes = found.tokens + tokens, found.bytes + bytes
end

--- Tokens per byte of UTF-8 of the inside `[first, last)` of a JSON string; `default` where there is nothing.
-- @param p const uint8_t *
function _M.per_byte(p, first, last, default)
  found.tokens, found.bytes = 0, 0
  if last - first <= 2 * END then
    read(p, first, last)
  else
    read(p, first, first + END)
    read(p, last - END, last)
  end
  return found.bytes > 0 and found.tokens / found.bytes / 1000 or default
end

--- The kind of a byte, for the fit.
function _M.kind(c)
  return c == BACKSLASH and MARK or kind_of[c]
end

return _M
