--- What is found in the text at hand: one static structure, from `words.begin` to the next.
local ffi = require "ffi"
local fixed_array = require "tokenweir.core.fixed_array"

--- Bytes of one part at most, and words that are kept of it (2 KB of prose have about 350).
local MOST_BYTES, MOST_WORDS = 4096, 768

ffi.cdef [[
typedef struct { int32_t hash, end_; } tw_word;
typedef struct {
  int32_t count, words, number_at, list_at;
  double number, stated_words, stated_sentences, stated_items;
  double bytes, lines, digits, marks, brackets, commas, stops, numbers, questions, accents, ideographs, others;
  int32_t cue[32];
  int32_t seen[1024];
  uint16_t index[3200];
  tw_word word[4200];
  int32_t candidate[800];
} tw_words;
]]

--- @table found (tw_words): `count` distinct indices in `index`; `words`; of the bytes or characters read: `bytes` (as
-- UTF-8), `lines` (line feeds), `digits`, `marks` (punctuation; `commas` and `stops` of it), `brackets` (of code),
-- `numbers`, `questions`, `accents` (letters of other alphabets and accented ones), `ideographs`, `others`; `cue` by
-- kind; `stated_*` lengths, 0 where none is stated. The others are of the part that is being read.
return { found = fixed_array.new("tw_words", 1), MOST_BYTES = MOST_BYTES, MOST_WORDS = MOST_WORDS }
