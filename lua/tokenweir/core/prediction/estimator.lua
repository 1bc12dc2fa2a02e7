--- What a request will produce: a trained model where there is one and it is better, else running figures; both
-- corrected by what came out.
--
--     features.read(parsed, estimator.x)                  -- in the access phase
--     estimator.predict(state, model, request)            -- request.mean, median, q90, sd, class, source
--     estimator.learn(state, model, request, output, ending, now)      -- when the answer is complete
--
-- `state` is one worker's: figures per public model, histories of keys, system prompts and sessions, all of fixed
-- size. The trees see a request relative to its `base`, what is to be expected of it by the past alone (`past.lua`). So
-- a new model, or one whose outputs change, is followed within a few dozen completions, without any training.
local ffi = require "ffi"
local conformal = require "tokenweir.core.prediction.conformal"
local distribution = require "tokenweir.core.prediction.output_distribution"
local features = require "tokenweir.core.prediction.features"
local fixed_array = require "tokenweir.core.fixed_array"
local history = require "tokenweir.core.prediction.history"
local identity = require "tokenweir.core.identity"
local past = require "tokenweir.core.prediction.past"
local predictor = require "tokenweir.core.prediction.predictor"
local running = require "tokenweir.core.prediction.running"
local skill = require "tokenweir.core.prediction.skill"
local words = require "tokenweir.core.prediction.words"

local judge_skill, JUDGED_FROM = skill.judge, skill.AT_LEAST
local learn_past, touch_key = past.learn, past.key
local predict_running = running.predict
local prior_of = predictor.prior
local exp, log, max, min, sqrt = math.exp, math.log, math.max, math.min, math.sqrt
local beyond, moments = distribution.beyond, distribution.moments
local evaluate, follow = predictor.evaluate, conformal.follow
local compare, read_past = history.compare, past.read
local MODEL_WINDOW, KEY_WINDOW, MODEL_STRENGTH = past.MODEL_WINDOW, past.KEY_WINDOW, past.MODEL_STRENGTH

--- Typical outputs as which a factor of 1 counts, in the correction of the mean.
local MODEL_BALLAST, KEY_BALLAST = 30, 15
local LEAST_FACTOR, MOST_FACTOR = 0.25, 4
--- How much one output moves the correction of a quantile: much at first, later just enough to follow a drift. That of
-- the median is right on average from the start, and moves by less.
local MEDIAN_STEP, MEDIAN_SHARE, Q90_STEP = 0.002, 0.1, 0.03
local FIRST_STEP, FIRST_OUTPUTS = 4, 40
local LEAST_SHIFT, MOST_SHIFT = -0.9, 8
local MOST_MODELS = 512
local UNKNOWN_SPREAD = 0.85
-- No engine produces more; keeps everything finite.
local MOST_TOKENS = require("tokenweir.contract").numbers.most_tokens
local MOST_LOG = log(MOST_TOKENS)

local _M = {}

--- The vector of the request at hand.
_M.x = fixed_array.new("tw_features", 1)
local x = _M.x
local list = features.array(x)

local said = { median = 0, lower = 0, upper = 0 }
local reference = { mean = 0, sd = 0, median = 0, q90 = 0, class = "" }
local figures = { count = 0, mean = 0, median = 0, spread = 0 }

--- @tparam number sets see `past.lua`
-- @treturn table a worker's state
function _M.new(sets)
  return {
    models = {}, count = 0,
    -- Of all models together: what is believed of one that has too few outputs to be judged by itself.
    skill = skill.new(),
    past = past.new(sets),
  }
end

local ROW = ffi.typeof("tw_past")

-- Whether running figures are to be served of a model, because the predictor is worse.
local function is_left(state, of_model)
  local own = of_model.skill
  if own.count < JUDGED_FROM then
    return state.skill.left
  end
  return own.left
end

local function model_state(state, name)
  local of_model = state.models[name]
  if of_model then
    return of_model
  end
  if state.count >= MOST_MODELS then
    state.models, state.count = {}, 0
  end
  of_model = {
    identity = identity.string(name), row = ROW(), mean = 0,
    prior = log(1 + running.PRIOR_MEDIAN), prior_spread = UNKNOWN_SPREAD, prior_of = nil,
    skill = skill.new(), beliefs = past.beliefs(state.past.beliefs),
  }
  state.models[name] = of_model
  state.count = state.count + 1
  return of_model
end

-- Priors come with a model, and give way to what the sidecar has seen of the fleet.
local function set_prior(of_model, model, name, stats)
  local source = stats and stats.count >= MODEL_STRENGTH and stats or model
  if of_model.prior_of == source then
    return
  end
  of_model.prior_of = source
  if source == stats and source then
    of_model.prior, of_model.prior_spread = log(1 + stats.median), stats.spread
  elseif model then
    of_model.prior, of_model.prior_spread = prior_of(model, name)
  end
end

-- What the request's model and key have shown of predictions of theirs.
local function read_corrections(of_model, key, request)
  local row = of_model.row
  request.key_factor, request.median_shift, request.q90_shift = 1, row.median_shift, row.q90_shift
  if key ~= nil then
    request.median_shift = row.median_shift + key.median_shift
    request.q90_shift = row.q90_shift + key.q90_shift
    local ballast = KEY_BALLAST * of_model.mean
    request.key_factor = (key.actual + ballast) / max(key.predicted + ballast, 1e-9)
  end
end

local function bounded(factor)
  return (max(LEAST_FACTOR, min(factor, MOST_FACTOR)))
end

local function running_figures(of_model, stats)
  local row = of_model.row
  if stats and stats.count > row.count then
    return stats
  end
  figures.count, figures.mean, figures.median = row.count, of_model.mean, exp(row.mean) - 1
  figures.spread = sqrt(row.variance)
  return figures
end

local function by_running_figures(of_model, request, out)
  return predict_running(running_figures(of_model, request.stats), request.max_tokens, request.threshold, request.prior,
    out)
end

-- What is served of the model's median and widths.
local function serve(model, of_model, request)
  local median, lower, upper = request.log_median, request.log_lower, request.log_upper
  local limit = request.max_tokens
  local mean, sd = moments(model.shape, median, lower, upper, limit)
  request.raw_mean = mean * model.mean_factor
  local row, ballast = of_model.row, MODEL_BALLAST * of_model.mean
  request.model_mean = request.raw_mean * bounded((row.actual + ballast) / max(row.predicted + ballast, 1e-9))
  local factor = bounded(request.key_factor)
  mean = request.model_mean * factor
  request.sd = sd * mean / max(1, request.raw_mean)
  local served = median + request.median_shift * (request.median_shift > 0 and upper or lower)
  local q90 = exp(min(max(served, median + upper * (1 + request.q90_shift)), MOST_LOG)) - 1
  served = exp(min(served, MOST_LOG)) - 1
  if limit then
    mean, served, q90 = min(mean, limit), min(served, limit), min(q90, limit)
    request.sd = min(request.sd, limit / 2)
  end
  request.mean, request.median, request.q90 = mean, max(0, served), q90
  request.class = served < request.threshold and "low" or "high"
  request.own_median, request.own_q90 = request.median, request.q90
  request.source = model.version
end

local function by_model(model, of_model, request)
  evaluate(model, x, list, words.index, words.text.count, said)
  request.log_median = max(0, min(x.base + said.median, MOST_LOG))
  request.log_lower, request.log_upper = said.lower, said.upper
  serve(model, of_model, request)
end

-- What the request orders and the engine obeys needs no prediction.
local function obey(request)
  local limit = request.max_tokens
  limit = limit and min(limit, MOST_TOKENS)
  local least = min(exp(x.min_tokens) - 1, MOST_TOKENS)
  request.bound = true
  if limit and (x.ignore_eos > 0 or least > limit) then
    least = limit
  end
  if least > request.median then
    request.median, request.mean, request.q90 = least, max(least, request.mean), max(least, request.q90)
    request.class = least < request.threshold and "low" or "high"
  end
  if limit and least >= limit then
    request.mean, request.q90, request.sd, request.ordered = limit, limit, 0, true
  end
end

--- Predicts the output of one sequence, min(length, max_tokens).
-- @param state of `new`
-- @param model of `predictor.open`, or nil
-- @param request table; read: `model` (public name), `key_id`, `system_id`, `session_id`, `prompt_id` (numbers of
--   `identity.lua`, 0 for none), `max_tokens` or nil, `threshold` (tokens from which the class is "high"), `prior`
--   (median of the configuration, or nil), `stats` (the model's figures of `tw:stats`, or nil). The members of `x` that
--   `features.read` fills, and `words.text`, must be of this request. Written: `mean`, `median`, `q90`, `sd`, `class`,
--   `source` (the model's version, or "running"), and what `learn` needs
function _M.predict(state, model, request)
  local of_model = model_state(state, request.model)
  set_prior(of_model, model, request.model, request.stats)
  read_corrections(of_model, read_past(state.past, of_model, request, x), request)
  request.ordered, request.bound = false, false
  if not model then
    request.log_median = false
  else
    by_model(model, of_model, request)
  end
  if not model or is_left(state, of_model) then
    request.source = "running"
    by_running_figures(of_model, request, request)
  end
  if x.min_tokens > 0 or x.ignore_eos > 0 then
    obey(request)
  end
end

--- Moves a prediction by what was found out since.
-- @param by what is added to the median of ln(1 + tokens)
-- @treturn boolean whether it was moved: running figures, and what the request orders, are not
function _M.refine(state, model, request, by)
  if not request.log_median or request.source ~= model.version or request.bound then
    return false
  end
  request.log_median = max(0, min(request.log_median + by, MOST_LOG))
  serve(model, model_state(state, request.model), request)
  return true
end

local function follow_quantiles(row, above_median, above_q90)
  local step = FIRST_STEP / (FIRST_OUTPUTS + row.count)
  row.median_shift = follow(row.median_shift, above_median, 0.5, max(MEDIAN_STEP, MEDIAN_SHARE * step), -2, 2)
  row.q90_shift = follow(row.q90_shift, above_q90, 0.1, max(Q90_STEP, step), LEAST_SHIFT, MOST_SHIFT)
end

local function judge(of, request, output)
  judge_skill(of, output, request.own_median, request.own_q90, reference.median, reference.q90)
end

-- Corrections by an output that the model predicted.
local function correct(state, of_model, key, request, output, value, capped)
  by_running_figures(of_model, request, reference)
  local left = is_left(state, of_model)
  judge(of_model.skill, request, output)
  judge(state.skill, request, output)
  local changed = is_left(state, of_model) ~= left
  local row = of_model.row
  compare(row, MODEL_WINDOW, output, request.raw_mean)
  if key ~= nil then
    compare(key, KEY_WINDOW, output, request.model_mean)
  end
  -- Coverage is a matter of outputs that ended by themselves.
  if not capped then
    local median, shift = request.log_median, request.median_shift
    local above_median = value > median + shift * (shift > 0 and request.log_upper or request.log_lower)
    local above_q90 = value > median + request.log_upper * (1 + request.q90_shift)
    follow_quantiles(row, above_median, above_q90)
    if key ~= nil then
      follow_quantiles(key, above_median, above_q90)
    end
  end
  return changed
end

--- Takes what a predicted request came to.
-- @param request as `predict` left it
-- @tparam number output tokens of one sequence
-- @tparam string ending "stop", "length" (its limit cut it), or "cut" (a client that left, a fault): of these only that
--   they would have been longer is known
-- Written: `request.learned`, ln(1 + tokens) as it counts.
-- @treturn boolean whether the model's predictions are served from now on and were not, or the other way round
function _M.learn(state, model, request, output, ending, now)
  if request.ordered then
    return false
  end
  local of_model = model_state(state, request.model)
  local value = log(1 + output)
  local predicted = model and request.log_median
  if ending ~= "stop" and predicted then
    value = beyond(model.shape, request.log_median, request.log_lower, request.log_upper, output)
  end
  request.learned = value
  local changed = false
  if predicted and ending ~= "cut" then
    local key = touch_key(state.past, of_model, request, now)
    changed = correct(state, of_model, key, request, output, value, ending == "length")
  end
  learn_past(state.past, of_model, request, value, output, ending ~= "cut", now)
  return changed
end

--- Takes what is known elsewhere of keys and system prompts, where it is more than is known here.
-- @param rows list of `of` ("key" or "system"), `model`, `number`, `count`, `mean`, `variance`
function _M.seed(state, rows, now)
  for k = 1, #rows do
    past.seed(state.past, model_state(state, rows[k].model), rows[k], now)
  end
end

--- Whether running figures are served of a model's predictions, because those are worse.
function _M.left(state, name)
  local of_model = state.models[name]
  return of_model ~= nil and is_left(state, of_model)
end

return _M
