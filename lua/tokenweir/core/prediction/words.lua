--- The words of a text that stands in a JSON string: hashed, counted by script, looked through for cues.
--
--     words.begin()
--     words.scan(p, first, stop, last, true)      -- one part, or two
--     words.text.count, words.index[k]            -- the distinct words and pairs of neighbours, as indices below SPACE
--
-- `split.lua` says what a word is, `text.lua` what else is found.
local bit = require "bit"
local ffi = require "ffi"
local cues = require "tokenweir.core.prediction.cues"
local found_in = require "tokenweir.core.prediction.text"
local split = require("tokenweir.core.prediction.split").words
local find_cues = require("tokenweir.core.prediction.stated").find
local word_hash = require "tokenweir.core.prediction.word_hash"

local band, bnot, bor, lshift, rshift, tobit = bit.band, bit.bnot, bit.bor, bit.lshift, bit.rshift, bit.tobit
local finish, pair = word_hash.finish, word_hash.pair
local ffi_fill = ffi.fill
local min = math.min
local is_cue = cues.is_cue
local text = found_in.found
-- Made in `collect` these would be new objects each time.
local found_words, seen, index, candidates = text.word, text.seen, text.index, text.candidate

local MOST_WORDS = found_in.MOST_WORDS
local BACKSLASH = 92

local _M = { text = text, index = index, MOST_BYTES = found_in.MOST_BYTES, MOST_WORDS = MOST_WORDS }

--- Number of different indices of words and pairs.
local SPACE = word_hash.SPACE
_M.SPACE = SPACE
local MASK = SPACE - 1

--- Forgets what was found.
function _M.begin()
  text.count, text.words = 0, 0
  text.stated_words, text.stated_sentences, text.stated_items = 0, 0, 0
  text.bytes, text.lines, text.digits, text.marks, text.brackets, text.questions = 0, 0, 0, 0, 0, 0
  text.commas, text.stops, text.numbers, text.accents, text.ideographs, text.others = 0, 0, 0, 0, 0, 0
  ffi_fill(text.cue, 4 * 32)
  ffi_fill(text.seen, SPACE / 8)
end

-- States become hashes, in place. What is not yet there is added to the distinct indices, and words that a cue or a
-- number may be to the candidates. Bits tell both, so that it all stays in the fastest cache. Returns how many
-- candidates there are.
local function collect(p, n)
  local count, found, before = text.count, 0, 0
  for k = 0, n - 1 do
    local word = finish(found_words[k].hash)
    found_words[k].hash = word
    local at = band(word, MASK)
    local place = rshift(at, 5)
    local old = seen[place]
    seen[place], index[count] = bor(old, lshift(1, at)), at
    count = tobit(count + band(bnot(rshift(old, at)), 1))
    local cue = rshift(is_cue[place], at)

    -- The first word and nothing before it are the word itself.
    at = band(pair(before, word), MASK)
    place = rshift(at, 5)
    old = seen[place]
    seen[place], index[count] = bor(old, lshift(1, at)), at
    count = tobit(count + band(bnot(rshift(old, at)), 1))

    -- 1 where a digit stands before the end.
    local digit = p[found_words[k].end_ - 1] - 48
    digit = rshift(band(digit - 10, bnot(digit)), 31)
    candidates[found] = k
    found = tobit(found + bor(digit, band(bor(cue, rshift(is_cue[place], at)), 1)))
    before = word
  end
  text.count = count
  return found
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
  local n = min(split(p, first, stop, last), MOST_WORDS)
  find_cues(p, first, collect(p, n))
  text.bytes, text.words = text.bytes + (stop - first), text.words + n
end

return _M
