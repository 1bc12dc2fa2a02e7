--- Splits a text that stands in a JSON string into words, and counts what it is made of.
--
-- The inside of the string is read as it stands in the body; escapes count as what they stand for, so a client that
-- writes "\u4e2d" gets the features of one that writes the character. A word is a run of letters and digits; a
-- character of Chinese or Japanese is a word.
--
-- A branch that the processor cannot foresee costs as much as ten steps of arithmetic, and words are unforeseeable. So
-- the loop over plain bytes, letters of other alphabets among them, has none: masks and table look-ups take their
-- place.
local bit = require "bit"
local ffi = require "ffi"
local fixed_array = require "tokenweir.core.fixed_array"
local text = require("tokenweir.core.prediction.text").found
-- Made in `words` it would be a new object each time.
local found_words = text.word

local band, bnot, bor, bxor = bit.band, bit.bnot, bit.bor, bit.bxor
local lshift, rol, rshift, tobit = bit.lshift, bit.rol, bit.rshift, bit.tobit
local floor = math.floor

local BACKSLASH, U = 92, 117

local _M = {}

ffi.cdef "typedef struct { double counted, marks; int32_t letter, in_word, escape, pad; } tw_byte_kind;"

-- By byte, and by byte + 256 for one behind a backslash. `letter`: what it adds to the state of a word: itself, letters
-- of ASCII in lower case; -1 where it is not plain. `in_word`: -1 if it is part of a word, else 0. `escape`: 256 for a
-- backslash, else 0. `counted`, `marks`: what it adds to the counters, four of which share a double.
local kinds = fixed_array.new("tw_byte_kind", 512)
local FIELD = 8192
local LINES, DIGITS, MARKS, BRACKETS = 1, FIELD, FIELD ^ 2, FIELD ^ 3
local COMMAS, STOPS, QUESTIONS, ACCENTS = 1, FIELD, FIELD ^ 2, FIELD ^ 3

-- First bytes of UTF-8 whose characters are letters, all of them: U+00C0 to U+1FFF, U+A000 to U+D7FF.
local function is_lead_of_letter(c)
  return c >= 0xC3 and c <= 0xE1 or c >= 0xEA and c <= 0xED
end

for x = 0, 511 do
  local c, kind = x % 256, kinds[x]
  local plain = x < 256
  if plain and (c >= 0x80 and c < 0xC0 or is_lead_of_letter(c)) then
    -- Second and third bytes come here behind such a first one only.
    kind.in_word, kind.letter = -1, c
    kind.marks = c >= 0xC0 and ACCENTS or 0
  elseif c >= 128 or not plain and (c == U or c == BACKSLASH) then
    kind.letter = -1
  elseif plain and (c >= 48 and c <= 57 or c >= 65 and c <= 90 or c >= 97 and c <= 122) then
    kind.in_word, kind.letter = -1, (c >= 65 and c <= 90) and c + 32 or c
    kind.counted = c <= 57 and DIGITS or 0
  elseif c > 32 and (plain or c == 34 or c == 47) then
    kind.counted = MARKS
  end
end
for bracket in ("{}[]()<>=;_#/*+|&^%$@~`"):gmatch(".") do
  kinds[bracket:byte()].counted = BRACKETS
end
kinds[BACKSLASH].escape, kinds[BACKSLASH].counted = 256, 0
kinds[10].counted, kinds[110 + 256].counted = LINES, LINES
for mark, counter in pairs { [","] = COMMAS, ["."] = STOPS, ["!"] = STOPS, ["?"] = QUESTIONS } do
  kinds[mark:byte()].marks = counter
end

local function hex_value(c)
  return band(c, 15) + 9 * rshift(c, 6)
end

local function is_ideograph(point)
  return point >= 0x3040 and point <= 0x9FFF or point >= 0xF900 and point <= 0xFAFF
end

-- First bytes of UTF-8 whose characters are all ideographs.
local function is_lead_of_ideograph(c)
  return c >= 0xE4 and c <= 0xE9
end

-- Letters of other scripts, Hangul and Thai among them; not general punctuation, symbols, private use, surrogates.
local function is_letter(point)
  return point >= 0xC0 and point < 0x2000 or point >= 0x2C00 and point < 0x2E00 or point >= 0xA000 and point <= 0xD7FF
    or point >= 0xFB00 and point < 0xFE00
end

local function is_surrogate(point)
  return point >= 0xD800 and point <= 0xDFFF
end

local function is_low_surrogate(point)
  return point >= 0xDC00 and point <= 0xDFFF
end

local function three_bytes(p, i)
  return bor(lshift(band(p[i], 15), 12), lshift(band(p[i + 1], 63), 6), band(p[i + 2], 63))
end

-- The character at `i` that is not plain, and the index after it: of several bytes, or behind a backslash another one
-- or the `u` of an escape. Behind two backslashes the next byte is plain again, whatever it is.
local function character(p, i, last)
  local c = p[i]
  if c == BACKSLASH then
    local behind = p[i + 1]
    if i + 1 < last and behind < 128 and behind ~= BACKSLASH then
      return behind, i + 2
    end
    return c, i + (behind == BACKSLASH and i + 1 < last and 2 or 1)
  elseif c == U then
    if i + 5 > last then
      return 0, i + 1
    end
    return bor(lshift(hex_value(p[i + 1]), 12), lshift(hex_value(p[i + 2]), 8), lshift(hex_value(p[i + 3]), 4),
      hex_value(p[i + 4])), i + 5
  elseif c < 0xE0 then
    return bor(lshift(band(c, 31), 6), band(p[i + 1], 63)), i + 2
  elseif c < 0xF0 then
    return three_bytes(p, i), i + 3
  end
  return 0x10000, i + 4
end

-- The state of a word after one more letter, as its bytes of UTF-8 would make it.
local function with_letter(state, point)
  if point < 128 then
    return bxor(rol(state, 5), kinds[point].letter)
  elseif point < 0x800 then
    state = bxor(rol(state, 5), bor(0xC0, rshift(point, 6)))
  else
    state = bxor(rol(state, 5), bor(0xE0, rshift(point, 12)))
    state = bxor(rol(state, 5), bor(0x80, band(rshift(point, 6), 63)))
  end
  return (bxor(rol(state, 5), bor(0x80, band(point, 63))))
end

-- A run of ideographs from `i`; `n` words stand before it. Returns the index behind it, and how many words there are.
local function ideographs(p, i, stop, n)
  local found, before = found_words, n
  while i < stop and is_lead_of_ideograph(p[i]) do
    -- Its end is put where no digit stands before it.
    found[n].hash, found[n].end_ = three_bytes(p, i), i + 1
    i, n = i + 3, n + 1
  end
  text.ideographs = text.ideographs + (n - before)
  return i, n
end

local function count_classes(sum, marks)
  local rest = floor(sum / FIELD)
  text.lines = text.lines + (sum - rest * FIELD)
  sum, rest = rest, floor(rest / FIELD)
  text.digits = text.digits + (sum - rest * FIELD)
  sum, rest = rest, floor(rest / FIELD)
  text.marks, text.brackets = text.marks + (sum - rest * FIELD), text.brackets + rest
  rest = floor(marks / FIELD)
  text.commas = text.commas + (marks - rest * FIELD)
  marks, rest = rest, floor(rest / FIELD)
  text.stops = text.stops + (marks - rest * FIELD)
  marks, rest = rest, floor(rest / FIELD)
  text.questions, text.accents = text.questions + (marks - rest * FIELD), text.accents + rest
end

--- Splits `[i, stop)` of a string's inside that ends at `last`: into `word` of the text go the words' last states and
-- where they end.
-- @param p const uint8_t *; bytes in `[i - 1, last]` may be read
-- @treturn number how many there are
function _M.words(p, i, stop, last)
  -- Locals, or compiled code would load and check them again for every byte.
  local found, kind_of = found_words, kinds
  local n, state, active, sum, marks, excess = 0, 0, 0, 0, 0, 0
  if stop < last and p[stop - 1] == BACKSLASH then
    -- What it escapes may be a letter of the word before it.
    stop = stop - 1
  end
  while i < stop do
    local at, escape = stop, kind_of[p[i - 1]].escape
    for j = i, stop - 1 do
      local c = p[j]
      local kind = kind_of[c + escape]
      local letter, inside = kind.letter, kind.in_word
      if letter < 0 then
        at = j
        break
      end
      -- Written for every byte; what was written last before the word's end is its state.
      local word = found[n]
      word.hash, word.end_ = state, j
      n = tobit(n - band(active, bnot(inside)))
      state = band(bxor(rol(state, 5), letter), inside)
      active, escape, sum, marks = inside, kind_of[c].escape, sum + kind.counted, marks + kind.marks
    end
    i = at
    if i < stop then
      local point, after = character(p, i, last)
      if is_letter(point) or point < 128 and kind_of[point].in_word ~= 0 then
        if p[i] == U and n > 0 and found[n - 1].end_ == i - 1 then
          -- The backslash seemed to end the word that the letter goes on with.
          n = n - 1
          state = found[n].hash
        end
        state, active = with_letter(state, point), -1
        text.accents = text.accents + (point < 128 and 0 or 1)
      else
        found[n].hash, found[n].end_ = state, i
        n = tobit(n - active)
        state, active = 0, 0
        if is_ideograph(point) then
          found[n].hash, found[n].end_ = point, i + 1
          n = tobit(n + 1)
          text.ideographs = text.ideographs + 1
        elseif point >= 128 and not is_low_surrogate(point) then
          text.others = text.others + 1
        end
      end
      if point < 128 then
        sum, marks = sum + kind_of[point].counted, marks + kind_of[point].marks
      end
      if p[i] == U then
        -- Six bytes for what takes one, two or three; two surrogates are one character of four.
        excess = excess + (point < 128 and 5 or (point < 2048 or is_surrogate(point)) and 4 or 3)
      end
      i = after
      if active == 0 and is_lead_of_ideograph(p[i]) then
        i, n = ideographs(p, i, stop, n)
      end
    end
  end
  text.bytes = text.bytes - excess
  -- The last word, unless the part was cut and the word perhaps with it.
  if active ~= 0 and i >= last then
    found[n].hash, found[n].end_ = state, i
    n = n + 1
  end
  count_classes(sum, marks)
  return n
end

return _M
