--- The words of a text that stands in a JSON string: hashed, counted by script, looked through for cues.
--
--     words.begin()
--     words.scan(p, first, stop, last, true)      -- one part, or two
--     words.text.count, words.text.index[k]       -- the distinct words and pairs of neighbours, as indices below SPACE
--
-- The inside of the string is read as it stands in the body; escapes count as what they stand for, so a client that
-- writes "\u4e2d" gets the features of one that writes the character. A word is a run of letters and digits; a
-- character of Chinese or Japanese is a word.
--
-- A branch that the processor cannot foresee costs as much as ten steps of arithmetic, and words are unforeseeable. So
-- the loops below have none for ordinary text: masks and table look-ups take their place, each loop does one thing to
-- all words, and what is found stays in one static structure until the next `begin`.
local ffi = require "ffi"
local bit = require "bit"
local cues = require "tokenweir.core.prediction.cues"
local word_hash = require "tokenweir.core.prediction.word_hash"

local band, bnot, bor, bxor = bit.band, bit.bnot, bit.bor, bit.bxor
local lshift, rol, rshift, tobit = bit.lshift, bit.rol, bit.rshift, bit.tobit
local finish, pair = word_hash.finish, word_hash.pair
local floor = math.floor
local ffi_fill, ffi_new = ffi.fill, ffi.new

local WORDS, SENTENCES, ITEMS, NUMBER, LIST = cues.WORDS, cues.SENTENCES, cues.ITEMS, cues.NUMBER, cues.LIST
local CUE_SLOTS = cues.SLOTS - 1
local cue_slot, cue_hash, cue_next, cue_kind, cue_value = cues.slot, cues.hash, cues.next, cues.kind, cues.value

local _M = {}

--- Number of different indices of words and pairs.
_M.SPACE = 32768
local MASK = _M.SPACE - 1
--- Bytes of one part at most, and words that are kept of it (2 KB of prose have about 350).
_M.MOST_BYTES, _M.MOST_WORDS = 4096, 768
local MOST_WORDS = _M.MOST_WORDS
--- A number and what it counts stand at most so many words apart ("10 different ways").
local NEAR = 2
local MOST_NUMBER, MOST_DIGITS = 100000, 20

ffi.cdef [[
typedef struct {
  int32_t generation, count, words, number_at, list_at;
  double number, stated_words, stated_sentences, stated_items;
  double bytes, lines, digits, marks, brackets, commas, stops, numbers, questions, accents, ideographs, others;
  int32_t cue[32];
  uint16_t index[3200];
  int32_t stamp[32768];
  int32_t state[4200], end_[4200], pair[800];
  int32_t candidate[1600];
} tw_words;
]]

local text = ffi_new("tw_words")

--- What was found since `begin` (tw_words): `count` distinct indices in `index`; `words`; of the bytes or characters
-- read: `bytes` (as UTF-8), `lines` (line feeds), `digits`, `marks` (punctuation; `commas` and `stops` of it),
-- `brackets` (of code), `numbers`, `questions`, `accents` (letters of other alphabets and accented ones),
-- `ideographs`, `others`; `cue` by kind; `stated_*` lengths, 0 where none is stated.
_M.text = text

local BACKSLASH, QUESTION = 92, 63

-- By byte, and by byte + 256 for one behind a backslash: -1 if it is part of a word, else 0.
local in_word = ffi_new("int32_t[512]")
-- What it adds to the state of a word: itself, letters in lower case; -1 where `special` must see to it.
local folded = ffi_new("int32_t[512]")
-- By byte: 256 for a backslash, else 0.
local escapes = ffi_new("int32_t[256]")
-- What it adds to the counters, which share two doubles.
local counted, counted_marks = ffi_new("double[512]"), ffi_new("double[512]")
local FIELD = 8192
local LINES, DIGITS, MARKS, BRACKETS = 1, FIELD, FIELD ^ 2, FIELD ^ 3
local COMMAS, STOPS = 1, FIELD

for x = 0, 511 do
  local c = x % 256
  local plain = x < 256
  if c >= 128 or plain and c == QUESTION or not plain and (c == 117 or c == BACKSLASH) then
    folded[x] = -1
  elseif plain and (c >= 48 and c <= 57 or c >= 65 and c <= 90 or c >= 97 and c <= 122) then
    in_word[x], folded[x] = -1, (c >= 65 and c <= 90) and c + 32 or c
    counted[x] = c <= 57 and DIGITS or 0
  elseif c > 32 and (plain or c == 34 or c == 47) then
    counted[x] = MARKS
  end
end
for bracket in ("{}[]()<>=;_#/*+|&^%$@~`"):gmatch(".") do
  counted[bracket:byte()] = BRACKETS
end
escapes[BACKSLASH] = 256
counted[BACKSLASH] = 0
counted[10], counted[110 + 256] = LINES, LINES
counted_marks[44], counted_marks[46], counted_marks[33] = COMMAS, STOPS, STOPS

--- Forgets what was found.
function _M.begin()
  local generation = text.generation + 1
  if generation > 2000000000 then
    generation = 1
    ffi_fill(text.stamp, 4 * _M.SPACE)
  end
  text.generation, text.count, text.words = generation, 0, 0
  text.stated_words, text.stated_sentences, text.stated_items = 0, 0, 0
  text.bytes, text.lines, text.digits, text.marks, text.brackets, text.questions = 0, 0, 0, 0, 0, 0
  text.commas, text.stops, text.numbers, text.accents, text.ideographs, text.others = 0, 0, 0, 0, 0, 0
  ffi_fill(text.cue, 4 * 32)
end

local function hex_value(c)
  return band(c, 15) + 9 * rshift(c, 6)
end

local function is_ideograph(point)
  return point >= 0x3040 and point <= 0x9FFF or point >= 0xF900 and point <= 0xFAFF
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

-- The character at `i` that is not plain, and the index after it: a question mark, a byte above 127, or behind a
-- backslash another one or the `u` of an escape. Behind two backslashes the next byte is plain again, whatever it is.
local function character(p, i, last)
  local c = p[i]
  if c == QUESTION then
    return c, i + 1
  elseif c == BACKSLASH then
    local behind = p[i + 1]
    if i + 1 < last and behind < 128 and behind ~= BACKSLASH then
      return behind, i + 2
    end
    return c, i + (behind == BACKSLASH and i + 1 < last and 2 or 1)
  elseif c == 117 then
    if i + 5 > last then
      return 0, i + 1
    end
    return bor(lshift(hex_value(p[i + 1]), 12), lshift(hex_value(p[i + 2]), 8), lshift(hex_value(p[i + 3]), 4),
      hex_value(p[i + 4])), i + 5
  elseif c < 0xE0 then
    return bor(lshift(band(c, 31), 6), band(p[i + 1], 63)), i + 2
  elseif c < 0xF0 then
    return bor(lshift(band(c, 15), 12), lshift(band(p[i + 1], 63), 6), band(p[i + 2], 63)), i + 3
  end
  return 0x10000, i + 4
end

local function count_classes(sum, marks)
  local rest = floor(sum / FIELD)
  text.lines = text.lines + (sum - rest * FIELD)
  sum, rest = rest, floor(rest / FIELD)
  text.digits = text.digits + (sum - rest * FIELD)
  sum, rest = rest, floor(rest / FIELD)
  text.marks, text.brackets = text.marks + (sum - rest * FIELD), text.brackets + rest
  rest = floor(marks / FIELD)
  text.commas, text.stops = text.commas + (marks - rest * FIELD), text.stops + rest
end

-- Splits `[i, stop)` into words: their last states and where they end. Returns how many there are.
local function split(p, i, stop, last)
  -- Locals, or compiled code would load and check them again for every byte.
  local states, ends, escaped = text.state, text.end_, escapes
  local character_of, is_inside, weight, mark_weight = folded, in_word, counted, counted_marks
  local n, state, active, sum, marks, excess = 0, 0, 0, 0, 0, 0
  if stop < last and p[stop - 1] == BACKSLASH then
    -- What it escapes may be a letter of the word before it.
    stop = stop - 1
  end
  while i < stop do
    local at = stop
    for j = i, stop - 1 do
      local x = p[j] + escaped[p[j - 1]]
      local add, inside = character_of[x], is_inside[x]
      if add < 0 then
        at = j
        break
      end
      -- Written for every byte; what was written last before the word's end is its state.
      states[n], ends[n] = state, j
      n = tobit(n - band(active, bnot(inside)))
      state = band(bxor(rol(state, 5), add), inside)
      active, sum, marks = inside, sum + weight[x], marks + mark_weight[x]
    end
    i = at
    if i < stop then
      local point, after = character(p, i, last)
      local inside = 0
      if point < 128 then
        inside, sum = is_inside[point], sum + weight[point]
        if point == QUESTION then
          text.questions = text.questions + 1
        end
      elseif is_letter(point) then
        inside = -1
        text.accents = text.accents + 1
        if n > 0 and p[i] == 117 and ends[n - 1] == i - 1 then
          -- The backslash seemed to end the word that the letter goes on with.
          n = n - 1
          state, active = states[n], -1
        end
      end
      states[n], ends[n] = state, i
      n = tobit(n - band(active, bnot(inside)))
      state = band(bxor(rol(state, 5), point < 128 and character_of[point] or point), inside)
      if point >= 128 and inside == 0 then
        if is_ideograph(point) then
          -- Its end is put where no digit stands before it.
          states[n], ends[n] = point, i + 1
          n = tobit(n + 1)
          text.ideographs = text.ideographs + 1
        elseif not is_low_surrogate(point) then
          text.others = text.others + 1
        end
      end
      if p[i] == 117 then
        -- Six bytes for what takes one, two or three; two surrogates are one character of four.
        excess = excess + (point < 128 and 5 or (point < 2048 or is_surrogate(point)) and 4 or 3)
      end
      i, active = after, inside
    end
  end
  text.bytes = text.bytes - excess
  -- The last word, unless the part was cut and the word perhaps with it.
  if active ~= 0 and i >= last then
    states[n], ends[n] = state, i
    n = n + 1
  end
  count_classes(sum, marks)
  return n
end

-- States become hashes, in place; `pairs_of` gets those of each word with the one before it.
local function hash(n)
  local states, pairs_of = text.state, text.pair
  local before = 0
  for k = 0, n - 1 do
    local h = finish(states[k])
    states[k], pairs_of[k] = h, pair(before, h)
    before = h
  end
end

-- Adds what is not yet there to the distinct indices.
local function collect(hashes, from, n)
  local stamps, generation, index, count = text.stamp, text.generation, text.index, text.count
  for k = from, n - 1 do
    local at = band(hashes[k], MASK)
    local new = bxor(stamps[at], generation)
    stamps[at], index[count] = generation, at
    count = tobit(count + rshift(bor(new, 0 - new), 31))
  end
  text.count = count
end

local function note_number(value, at)
  text.number, text.number_at, text.numbers = value, at, text.numbers + 1
  if at - text.list_at <= NEAR and value > text.stated_items then
    text.stated_items = value
  end
end

local function check(entry, h, at)
  if cue_hash[entry] ~= h then
    return
  end
  local kind = cue_kind[entry]
  text.cue[kind] = text.cue[kind] + 1
  if kind == NUMBER then
    note_number(cue_value[entry], at)
  elseif kind == LIST then
    text.list_at = at
  elseif kind >= WORDS and at - text.number_at <= NEAR then
    local number = text.number
    if kind == WORDS and number > text.stated_words then
      text.stated_words = number
    elseif kind == SENTENCES and number > text.stated_sentences then
      text.stated_sentences = number
    elseif kind == ITEMS and number > text.stated_items then
      text.stated_items = number
    end
  end
end

-- At most three entries share a slot.
local function look_up(h, at)
  local entry = cue_slot[band(h, CUE_SLOTS)]
  if entry ~= 0 then
    check(entry, h, at)
    entry = cue_next[entry]
    if entry ~= 0 then
      check(entry, h, at)
      entry = cue_next[entry]
      if entry ~= 0 then
        check(entry, h, at)
      end
    end
  end
end

local function is_digit(c)
  return c >= 48 and c <= 57
end

-- The value of the `count` digits before `stop` if they are all of the word of hash `h`, else -1.
local function value_of(p, stop, count, h)
  local state, value = 0, 0
  for i = stop - count, stop - 1 do
    local c = p[i]
    state, value = bxor(rol(state, 5), c), value * 10 + (c - 48)
  end
  return finish(state) == h and value or -1
end

-- The number that the word of hash `h` is whose last digit stands before `stop`; -1 if it is no number. Which of the
-- digits before `stop` are the word's tells its hash: the digits of an escape may stand right before them.
local function number_before(p, first, stop, h)
  local count = 1
  while count < MOST_DIGITS and stop - count > first and is_digit(p[stop - count - 1]) do
    count = count + 1
  end
  for digits = count, 1, -1 do
    local value = value_of(p, stop, digits, h)
    if value >= 0 then
      return value < MOST_NUMBER and value or MOST_NUMBER
    end
  end
  return -1
end

local function find_cues(p, first, n)
  local hashes, pairs_of, ends, candidates = text.state, text.pair, text.end_, text.candidate
  local found = 0
  for k = 0, n - 1 do
    local digit = p[ends[k] - 1] - 48
    -- 1 where a digit stands before the end, or where a cue may.
    local some = bor(rshift(band(digit - 10, bnot(digit)), 31), cue_slot[band(hashes[k], CUE_SLOTS)],
      cue_slot[band(pairs_of[k], CUE_SLOTS)])
    candidates[found] = k
    found = tobit(found + rshift(0 - some, 31))
  end
  text.number, text.number_at, text.list_at = 0, -NEAR - 1, -NEAR - 1
  for m = 0, found - 1 do
    local k = candidates[m]
    if is_digit(p[ends[k] - 1]) then
      local value = number_before(p, first, ends[k], hashes[k])
      if value >= 0 then
        note_number(value, k)
      end
    end
    look_up(hashes[k], k)
    if k > 0 then
      look_up(pairs_of[k], k)
    end
  end
end

-- Where reading may begin in a part that was cut out: at the first space, so that the word which the cut went through
-- is left out. Scripts without spaces have none so near: then at the first character that begins there.
local function whole_from(p, first, stop)
  local limit = first + 64 < stop and first + 64 or stop
  local begins = -1
  for i = first, limit - 1 do
    local c = p[i]
    if c == 32 then
      return i
    elseif begins < 0 and (c >= 0xC2 or c == BACKSLASH and p[i - 1] ~= BACKSLASH) then
      begins = i
    end
  end
  return begins >= 0 and begins or first
end

--- Reads the part `[first, stop)` of a string's inside that ends at `last`; at most MOST_BYTES. An escape or character
-- that begins before `stop` is read whole, and a word that a cut goes through is left out.
-- @param p const uint8_t *; bytes in `[first - 1, last]` may be read
-- @tparam boolean whole whether the string begins at `first`; else the part begins somewhere in it
function _M.scan(p, first, stop, last, whole)
  if not whole then
    first = whole_from(p, first, stop)
  end
  local n = split(p, first, stop, last)
  if n > MOST_WORDS then
    n = MOST_WORDS
  end
  hash(n)
  collect(text.state, 0, n)
  collect(text.pair, 1, n)
  find_cues(p, first, n)
  text.bytes, text.words = text.bytes + (stop - first), text.words + n
end

return _M
