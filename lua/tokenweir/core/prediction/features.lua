--- What is known of a request before it runs, as one vector of numbers: the only implementation, for serving, training
-- and simulation.
--
--     features.read(parsed, x)          -- what the request itself says
--     x.base, x.key_shift, ... = ...    -- what its past says: `estimator.lua`
--
-- Sizes and counts are logarithms, ln(1 + x): the trees cut ranges, and a range of logarithms is worth one cut.
-- Members are single precision, so that a vector that was recorded is bit for bit the one that was predicted from.
local ffi = require "ffi"
local cues = require "tokenweir.core.prediction.cues"
local sampling = require "tokenweir.core.body.sampling"
local shape = require "tokenweir.core.body.request_shape"
local text_tokens = require "tokenweir.core.body.text_tokens"
local turns = require "tokenweir.core.body.turns"
local words = require "tokenweir.core.prediction.words"

local begin_words = words.begin
local ipairs = ipairs
local cast = ffi.cast
local log, min = math.log, math.min
local per_byte, read_sampling, scan = text_tokens.per_byte, sampling.read, words.scan
local identity = require("tokenweir.core.identity").of

local FUNCTIONS, TOOLS = shape.TAGS.functions, shape.TAGS.tools
local SYSTEM, USER, ASSISTANT, TOOL = turns.SYSTEM, turns.USER, turns.ASSISTANT, turns.TOOL
local span, last_bytes = turns.span, turns.last_bytes

--- By what the past says (`estimator.lua`): `base` is the expected ln(1 + output) by running figures; `*_shift` how far
-- those of the key, the system prompt and the session lie from the model's; `*_spread` standard deviations; `*_count`
-- how many completions speak, as logarithms; `session_last` the last output of the session against the base;
-- `prompt_shift` how far outputs of the same last message lay from what was expected without it, whoever asked.
local PAST = {
  "base", "model_spread", "model_count", "key_shift", "key_spread", "key_count", "system_shift", "system_spread",
  "system_count", "session_shift", "session_count", "session_last", "prompt_shift", "prompt_count",
}
--- By the request's form.
local FORM = {
  "kind", "prompt_bytes", "prompt_tokens", "messages", "user_messages", "assistant_messages", "tool_messages",
  "system_messages", "user_bytes", "user_words", "system_bytes", "assistant_bytes", "assistant_mean", "tool_bytes",
  "media", "tools", "tools_bytes", "tool_choice", "format", "stop", "choices", "temperature", "top_p", "max_tokens",
  "min_tokens", "ignore_eos", "effort", "thinking", "thinking_budget", "stream", "logprobs",
}
--- By the text of the last message of the user: shares of its bytes, counts, cues, stated lengths.
local TEXT = {
  "lines", "digits", "marks", "brackets", "accents", "ideographs", "others", "questions", "commas",
  "stops", "numbers", "word_length", "distinct",
}
local STATED = { "stated_words", "stated_sentences", "stated_items" }

--- Names of the members in order. The last one is filled by `predictor.lua`: the linear model's score of the words.
local NAMES = {}
for _, list in ipairs { PAST, FORM, TEXT } do
  for _, name in ipairs(list) do
    NAMES[#NAMES + 1] = name
  end
end
local FIRST_CUE = #NAMES
for _, name in ipairs(cues.NAMES) do
  NAMES[#NAMES + 1] = "cue_" .. name
end
for _, name in ipairs(STATED) do
  NAMES[#NAMES + 1] = name
end
NAMES[#NAMES + 1] = "word_score"

ffi.cdef("typedef struct { float " .. table.concat(NAMES, ", ") .. "; } tw_features;")

--- Grows with every change of a feature's meaning; a model of another version is refused.
local VERSION = 4

local _M = { NAMES = NAMES, COUNT = #NAMES, PAST = #PAST, VERSION = VERSION }

local CUES = #cues.NAMES
-- Bytes of the last message of the user that are read at each end.
local END = 2048
-- Of the system prompt, for its hash.
local HASHED = 2048
-- Where there is no text to tell.
local TOKENS_PER_BYTE = 0.25
local KINDS = { chat = 0, completions = 1, responses = 2, embeddings = 3 }

local floats = ffi.typeof("float *")

--- A new vector (tw_features), zeroed.
function _M.new()
  return ffi.new("tw_features")
end

--- The same vector as an array from 0. The vector must be kept.
function _M.array(x)
  return cast(floats, x)
end

-- Both ends of the last message of the user. Of a message in several parts (a text, a picture, a question) the first
-- text's beginning and the last one's end.
local function read_words(of, p)
  begin_words()
  local first, last = span(of, USER, true, false)
  if first < 0 then
    return
  end
  local tail_first, tail_last = span(of, USER, true, true)
  if tail_first ~= first then
    scan(p, first, min(last, first + END), last, true)
    if tail_last - tail_first > END then
      scan(p, tail_last - END, tail_last, tail_last, false)
    else
      scan(p, tail_first, tail_last, tail_last, true)
    end
    return
  end
  if last - first <= 2 * END then
    scan(p, first, last, last, true)
  else
    scan(p, first, first + END, last, true)
    scan(p, last - END, last, last, false)
  end
end

local function fill_text(x, text)
  local bytes = text.bytes
  local share = bytes > 0 and 1 / bytes or 0
  x.lines, x.digits = text.lines * share, text.digits * share
  x.marks, x.brackets = text.marks * share, text.brackets * share
  x.accents, x.ideographs, x.others = text.accents * share, text.ideographs * share, text.others * share
  x.questions, x.numbers = log(1 + text.questions), log(1 + text.numbers)
  x.commas, x.stops = log(1 + text.commas), log(1 + text.stops)
  x.word_length = text.words > 0 and bytes / text.words or 0
  x.distinct = text.words > 0 and text.count / text.words or 0
  for k = 1, CUES do
    cast(floats, x)[FIRST_CUE + k - 1] = min(text.cue[k], 4)
  end
  x.stated_words, x.stated_sentences = log(1 + text.stated_words), log(1 + text.stated_sentences)
  x.stated_items = log(1 + text.stated_items)
end

local function fill_sampling(x, found)
  x.tool_choice, x.format, x.stop = found.tool_choice, found.format, found.stop
  x.temperature, x.top_p = found.temperature, found.top_p
  x.min_tokens, x.ignore_eos, x.logprobs = log(1 + found.min_tokens), found.ignore_eos, found.logprobs
  x.effort, x.thinking, x.thinking_budget = found.effort, found.thinking, log(1 + found.thinking_budget)
end

local function fill_form(x, out)
  local tally = out.tally
  local of = tally.turns
  local count, bytes = of.count, of.total
  x.kind, x.prompt_bytes, x.messages = KINDS[out.kind] or 4, log(1 + out.prompt_bytes), log(1 + out.messages)
  x.user_messages, x.assistant_messages = log(1 + count[USER]), log(1 + count[ASSISTANT])
  x.tool_messages, x.system_messages = log(1 + count[TOOL]), log(1 + count[SYSTEM])
  x.user_bytes, x.user_words = log(1 + last_bytes(of, USER)), log(1 + words.text.words)
  x.system_bytes, x.assistant_bytes = log(1 + bytes[SYSTEM]), log(1 + last_bytes(of, ASSISTANT))
  x.assistant_mean = count[ASSISTANT] > 0 and log(1 + bytes[ASSISTANT] / count[ASSISTANT]) or 0
  x.tool_bytes, x.media = log(1 + bytes[TOOL]), out.media
  x.tools = log(1 + tally.items[TOOLS] + tally.items[FUNCTIONS])
  x.tools_bytes = log(1 + tally.text[TOOLS] + tally.text[FUNCTIONS])
  x.choices, x.stream = out.n, out.stream and 1 or 0
  x.max_tokens = out.max_tokens and log(1 + out.max_tokens) or 0
end

-- A number for the bytes in `[first, last)`: of long ones for their two ends and size; 0 where there are none.
local function id_of(p, first, last)
  local size = last - first
  if first < 0 or size == 0 then
    return 0
  end
  if size <= 2 * HASHED then
    return (identity(p, first, last, 0))
  end
  return (identity(p, last - HASHED, last, identity(p, first, first + HASHED, size)))
end

--- What running figures need to know of a request; all of it costs about a microsecond.
-- @param out of `request.parse`, with its body at hand; it gets `estimated_tokens` of the prompt, and
--   `system_id`, its system prompt's number (`identity.lua`), 0 for none
-- @param x tw_features; the members by `sampling.lua` are written
local function glance(out, x)
  local p, of = out.p, out.tally.turns
  local first, last = span(of, USER, true, true)
  local each = first >= 0 and per_byte(p, first, last, TOKENS_PER_BYTE) or TOKENS_PER_BYTE
  out.estimated_tokens = each * out.prompt_bytes + (out.prompt_tokens or 0)
  out.system_id = id_of(p, span(of, SYSTEM, false, false))
  read_sampling(out)
  fill_sampling(x, sampling.found)
end
_M.glance = glance

--- Reads all that a request says of itself. The words' indices stay in `words.text` until the next call.
-- @param out, x as of `glance`; it gets `prompt_id` too, the number of the last message of the user; all members but
--   those of the past and `word_score` are written
function _M.read(out, x)
  glance(out, x)
  out.prompt_id = id_of(out.p, span(out.tally.turns, USER, true, false))
  read_words(out.tally.turns, out.p)
  fill_text(x, words.text)
  fill_form(x, out)
  x.prompt_tokens = log(1 + out.estimated_tokens)
end

return _M
