-- What Python asks of the predictor's Lua, many requests at a time: arrays cross as strings of packed numbers.
local ffi = require "ffi"
local distribution = require "tokenweir.core.prediction.output_distribution"
local estimator = require "tokenweir.core.prediction.estimator"
local features = require "tokenweir.core.prediction.features"
local predictor = require "tokenweir.core.prediction.predictor"
local request = require "tokenweir.core.body.request"
local words = require "tokenweir.core.prediction.words"

-- As in the gateway.
require "tokenweir.core.compiler"

local cast, copy, new, text_of = ffi.cast, ffi.copy, ffi.new, ffi.string

local COUNT = features.COUNT
local BYTES = 4 * COUNT
local ENDINGS = { [0] = "stop", [1] = "length", [2] = "cut" }
local PAST_BYTES = 4 * features.PAST
local FIGURES = 6

local _M = { names = features.NAMES, past = features.PAST, version = features.VERSION, space = words.SPACE,
  steps = distribution.STEPS }

local x, list = estimator.x, features.array(estimator.x)

--- Reads bodies. Returns the vectors (float32), the number of each one's words (int32), the words (uint16), and per
-- body its system prompt's number, estimated prompt tokens, prompt bytes and last message's number (float64); or
-- nil, a message.
function _M.read(kinds, bodies, n)
  local vectors, counts, meta = new("float[?]", n * COUNT), new("int32_t[?]", n), new("double[?]", 4 * n)
  local lists, out = {}, {}
  for k = 0, n - 1 do
    local ok, code, message = request.parse(kinds[k + 1], bodies[k + 1], out)
    if not ok then
      return nil, "request " .. k .. ": " .. code .. ": " .. message
    end
    ffi.fill(x, BYTES)
    features.read(out, x)
    copy(vectors + k * COUNT, x, BYTES)
    counts[k] = words.text.count
    lists[k + 1] = text_of(words.text.index, 2 * words.text.count)
    local at = 4 * k
    meta[at], meta[at + 1] = out.system_id, out.estimated_tokens
    meta[at + 2], meta[at + 3] = out.prompt_bytes, out.prompt_id
  end
  return text_of(vectors, n * BYTES), text_of(counts, 4 * n), table.concat(lists), text_of(meta, 32 * n)
end

--- Opens an exported model whose payload was decoded by the caller, or the envelope with a decoder.
_M.build, _M.open = predictor.build, predictor.open

local function load_words(index, first, count)
  copy(words.text.index, index + first, 2 * count)
  words.text.count = count
end

--- Evaluates vectors whose past is filled: per vector the median, the two distances, the word score and the mean of
-- min(output, limit) (float64; a limit below 0 is none).
function _M.evaluate(model, n, given)
  -- The strings behind the pointers live as long as `given`.
  local vectors, counts = cast("const float *", given.vectors), cast("const int32_t *", given.counts)
  local index, limits = cast("const uint16_t *", given.index), cast("const double *", given.limits)
  local result, said, first = new("double[?]", 5 * n), {}, 0
  for k = 0, n - 1 do
    copy(x, vectors + k * COUNT, BYTES)
    load_words(index, first, counts[k])
    first = first + counts[k]
    predictor.evaluate(model, x, list, words.text.index, words.text.count, said)
    local at = result + 5 * k
    at[0], at[1], at[2], at[3] = said.median, said.lower, said.upper, x.word_score
    at[4] = distribution.moments(model.shape, x.base + said.median, said.lower, said.upper,
      limits[k] >= 0 and limits[k] or nil)
  end
  return text_of(result, 40 * n), given.vectors
end

--- A worker's state of the estimator.
function _M.new_state()
  return estimator.new(1024)
end

--- Plays a stream of requests through a state: `events` (int32) has k + 1 where request k arrives and -(k + 1) where
-- its answer is complete. `models` is a list of opened models, or empty; `model_of` (int32) gives each request's place
-- in it, -1 for none. Returns per request mean, median, q90, sd, whether running figures were served, log median
-- (float64), and its past features (float32).
function _M.replay(state, models, names, stream)
  local n, threshold = stream.n, stream.threshold
  local vectors, counts = cast("const float *", stream.vectors), cast("const int32_t *", stream.counts)
  local index, starts = cast("const uint16_t *", stream.index), cast("const double *", stream.starts)
  local request_of, model_of = cast("const int32_t *", stream.request_of), cast("const int32_t *", stream.model_of)
  local name_of, ending = cast("const int32_t *", stream.name_of), cast("const uint8_t *", stream.ending)
  local ids = cast("const double *", stream.ids)
  local limit, output = cast("const double *", stream.limit), cast("const double *", stream.output)
  local events = cast("const int32_t *", stream.events)
  local figures, past = new("double[?]", FIGURES * n), new("float[?]", features.PAST * n)
  local open, idle = {}, {}
  for e = 0, stream.event_count - 1 do
    local event = events[e]
    if event > 0 then
      local k = event - 1
      local r = table.remove(idle) or {}
      local at = request_of[k]
      copy(x, vectors + at * COUNT, BYTES)
      load_words(index, starts[at], counts[at])
      r.model, r.threshold, r.prior, r.stats = names[name_of[k] + 1], threshold, nil, nil
      r.key_id, r.system_id, r.session_id, r.prompt_id = ids[4 * k], ids[4 * k + 1], ids[4 * k + 2], ids[4 * k + 3]
      r.max_tokens = limit[k] >= 0 and limit[k] or nil
      estimator.predict(state, models[model_of[k] + 1], r)
      local f = figures + FIGURES * k
      f[0], f[1], f[2], f[3] = r.mean, r.median, r.q90, r.sd
      f[4], f[5] = r.source == "running" and 1 or 0, r.log_median or 0
      copy(past + features.PAST * k, x, PAST_BYTES)
      open[k] = r
    else
      local k = -event - 1
      local r = open[k]
      open[k] = nil
      estimator.learn(state, models[model_of[k] + 1], r, output[k], ENDINGS[ending[k]], e)
      idle[#idle + 1] = r
    end
  end
  return text_of(figures, 8 * FIGURES * n), text_of(past, PAST_BYTES * n)
end

return _M
