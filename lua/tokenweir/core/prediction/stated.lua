--- Finds cues and stated lengths among the words that may be some.
local bit = require "bit"
local cues = require "tokenweir.core.prediction.cues"
local text = require("tokenweir.core.prediction.text").found
local words, candidates = text.word, text.candidate
local word_hash = require "tokenweir.core.prediction.word_hash"

local band, bxor, rol = bit.band, bit.bxor, bit.rol
local finish, pair = word_hash.finish, word_hash.pair

local WORDS, SENTENCES, ITEMS, NUMBER, LIST = cues.WORDS, cues.SENTENCES, cues.ITEMS, cues.NUMBER, cues.LIST
local CUE_SLOTS = cues.SLOTS - 1
local cue_slot, cue_hash, cue_next, cue_kind, cue_value = cues.slot, cues.hash, cues.next, cues.kind, cues.value
--- A number and what it counts stand at most so many words apart ("10 different ways").
local NEAR = 2
local MOST_NUMBER, MOST_DIGITS = 100000, 20

local _M = {}

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

--- Looks through the text's candidates.
-- @param p const uint8_t *
-- @tparam number first where the part begins; @tparam number found how many candidates there are
function _M.find(p, first, found)
  text.number, text.number_at, text.list_at = 0, -NEAR - 1, -NEAR - 1
  for m = 0, found - 1 do
    local k = candidates[m]
    local word, stop = words[k].hash, words[k].end_
    if is_digit(p[stop - 1]) then
      local value = number_before(p, first, stop, word)
      if value >= 0 then
        note_number(value, k)
      end
    end
    look_up(word, k)
    if k > 0 then
      look_up(pair(words[k - 1].hash, word), k)
    end
  end
end

return _M
