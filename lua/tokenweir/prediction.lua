--- What a request will need: tokens of its prompt, and the length of its answer; and what is learned when it has ended.
--
-- The state is this worker's; `core/prediction/estimator.lua` and `core/prediction/prompt_tokens.lua` say what is in
-- it.
local ffi = require "ffi"
local clock = require "tokenweir.clock"
local defaults = require "tokenweir.core.documents.defaults"
local estimator = require "tokenweir.core.prediction.estimator"
local features = require "tokenweir.core.prediction.features"
local identity = require "tokenweir.core.identity"
local metrics = require "tokenweir.metrics"
local prompt_tokens = require "tokenweir.core.prediction.prompt_tokens"
local running = require "tokenweir.core.prediction.running"
local small_model = require "tokenweir.small_model"
local state = require "tokenweir.state"
local words = require "tokenweir.core.prediction.words"

local add, count_predicted = metrics.add, metrics.predicted
local estimate_tokens, learn_tokens, raw_tokens = prompt_tokens.estimate, prompt_tokens.learn, prompt_tokens.raw
local glance, read_features = features.glance, features.read
local learn, predict = estimator.learn, estimator.predict
local predict_running = running.predict
local ceil, max = math.ceil, math.max
local random = math.random
local copy, text_of = ffi.copy, ffi.string

--- What holds of a model of which no completion is known.
local UNKNOWN = defaults.of("stats", "models")
--- Sets of the histories of keys; four keys each.
local SETS = 1024
local VECTOR_BYTES = 4 * features.COUNT
local MOST_TOKENIZERS = 512
--- Requests of a worker whose features are recorded in a second: 100 make the newest 50,000, from which is trained, in
-- minutes, and a busy gateway is spared the rest.
local MOST_RECORDED = 100

--- Kinds whose answers have a length that their request tells something of.
local UNDERSTOOD = { chat = true, completions = true, responses = true }
--- How outputs ended that tell at least so much: they would have been longer.
local CUT_SHORT = { client_gone = true, upstream_broke = true, timeout = true }

local _M = {}

local own = estimator.new(SETS)
local second_ends, recorded = 0, 0
local x = estimator.x

-- Output priors by public name, of the settings they were made from.
local priors, priors_of = {}, nil

local function prior_of(settings, name)
  if priors_of ~= settings then
    priors, priors_of = {}, settings
    for _, model in ipairs(settings.models) do
      priors[model.name] = model.output_prior
    end
  end
  return priors[name]
end

local tokenizers, tokenizer_count = {}, 0

local function tokenizer_of(name)
  local of = tokenizers[name]
  if not of then
    if tokenizer_count >= MOST_TOKENIZERS then
      tokenizers, tokenizer_count = {}, 0
    end
    of = prompt_tokens.new()
    tokenizers[name], tokenizer_count = of, tokenizer_count + 1
  end
  return of
end

-- Embeddings produce no tokens. Of what is not understood (a picture to be edited, a file) nothing is known, least of
-- all by its size in bytes: it is one sequence in flight.
local function of_no_output(r)
  r.mean, r.median, r.q90, r.sd, r.class = 1, 1, 1, 0, "low"
end

-- What a worker thread read of a body in a file.
local function adopt_features(parsed)
  local found = parsed.found
  copy(x, found.vector, VECTOR_BYTES)
  words.text.count = #found.hashed / 2
  copy(words.text.index, found.hashed, #found.hashed)
  parsed.estimated_tokens, parsed.system_id, parsed.prompt_id = found.estimated_tokens, found.system_id, found.prompt_id
end

local function key_id(key)
  if not key then
    return 0
  end
  local id = key.identity
  if not id then
    id = identity.string(key.id)
    key.identity = id
  end
  return id
end

-- The halves of the session's hash as one number of 52 bits.
local function session_id(r)
  return r.session and r.session % 1048576 * 4294967296 + r.session_set % 4294967296 or 0
end

-- Whether this request's features are to be recorded: a share of them, and no more in a second than training makes use
-- of.
local function is_sampled(how, now)
  if not how.record or random() >= how.sample then
    return false
  elseif now >= second_ends then
    second_ends, recorded = now + 1000, 0
  end
  recorded = recorded + 1
  return recorded <= MOST_RECORDED
end

-- Keeps the vector for the completion record.
local function keep(r, how)
  r.vector = text_of(x, VECTOR_BYTES)
  r.hashed = how.words and text_of(words.text.index, 2 * words.text.count) or ""
end

local function understand(r, known, parsed)
  local how = known.settings.predictor
  local fitted = how.enabled and known.predictor or nil
  local sampled = is_sampled(how, r.arrived)
  if parsed.found then
    adopt_features(parsed)
  elseif fitted or sampled then
    read_features(parsed, x)
  else
    glance(parsed, x)
    parsed.prompt_id = 0
  end
  r.raw_prompt, r.media = raw_tokens(parsed.estimated_tokens, parsed.messages), parsed.media
  r.prompt = estimate_tokens(tokenizer_of(r.model), r.raw_prompt, parsed.media)
  r.key_id, r.system_id, r.session_id = key_id(r.key), parsed.system_id, session_id(r)
  r.prompt_id = parsed.prompt_id
  r.stats = known.stats and known.stats.models[r.model] or false
  r.prior, r.fitted = prior_of(known.settings, r.model) or false, fitted or false
  predict(own, fitted, r)
  if sampled then
    keep(r, how)
  end
end

--- Fills `prompt`, `n`, `max_tokens`, `mean`, `median`, `q90`, `sd`, `class`, `tokens_per_event` and `source` of a
-- record, and what `learn` needs.
-- @param known `state.current()`
function _M.fill(r, known)
  local stats = known.stats and known.stats.models[r.model]
  local parsed, usual = r.parsed, stats or UNKNOWN
  r.threshold, r.tokens_per_event = known.thresholds.class_threshold, usual.tokens_per_event
  if parsed.kind then
    r.prompt_bytes = parsed.prompt_bytes
    r.n = parsed.prompts * max(parsed.n, parsed.best_of or 1)
    r.max_tokens, r.stream = parsed.max_tokens or false, parsed.stream
    if UNDERSTOOD[r.kind] then
      return understand(r, known, parsed)
    end
    local tokens = parsed.prompt_bytes * usual.tokens_per_byte
    r.prompt = ceil(raw_tokens(tokens + (parsed.prompt_tokens or 0), parsed.messages)
      + prompt_tokens.PER_MEDIUM * parsed.media)
  end
  if r.kind == "embeddings" or not r.stream then
    return of_no_output(r)
  end
  predict_running(stats, r.max_tokens, r.threshold, prior_of(known.settings, r.model), r)
end

state.on_change(function(name, known)
  if name == "histories" then
    estimator.seed(own, known.histories.rows, clock.ms())
  end
end)

--- Moves the prediction of a request by what was found out since; see `estimator.refine`.
function _M.refine(r, by)
  return r.fitted and estimator.refine(own, r.fitted, r, by)
end

local function ending_of(r, outcome)
  if outcome == "ok" then
    local told = r.sse or r.usage
    local finish = told and told.finish_reason
    return (finish == "length" or finish == "max_tokens") and "length" or "stop"
  end
  return CUT_SHORT[outcome] and "cut" or nil
end

-- Which of two things the gateway serves of a model's predictions has changed.
local function tell_fallback(r)
  local left = estimator.left(own, r.model)
  add("predictor_fallbacks", 1, r.model, left and "left" or "returned")
  ngx.log(ngx.NOTICE, "tokenweir: model ", r.pool.json, ": ", left
    and "the predictor is worse than its running figures, which are served until it is better again"
    or "the predictor is better than its running figures again, and is served")
end

--- Takes how a predicted request ended; in the log phase.
-- @param outcome string, of the contract's `Outcome`
-- @param output number of output tokens of all choices, or nil
-- @param told number of prompt tokens that the engine counted, or nil
function _M.learn(r, outcome, output, told, now)
  if not r.raw_prompt then
    return
  end
  if told then
    learn_tokens(tokenizer_of(r.model), r.raw_prompt, told, r.media)
  end
  local ending = ending_of(r, outcome)
  if not output or not ending or ending == "cut" and output == 0 then
    return
  end
  if ending ~= "cut" then
    count_predicted(r.model, r.mean * r.n, output)
  end
  if learn(own, r.fitted, r, output / r.n, ending, now) then
    tell_fallback(r)
  end
  if r.opinion and r.opinion.number and ending == "stop" then
    small_model.learn(r, output / r.n)
  end
end

return _M
