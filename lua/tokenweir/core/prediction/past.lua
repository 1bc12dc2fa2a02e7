--- What came out before, and what is to be expected of a request by that alone: its base.
--
-- The model's running mean of ln(1 + output) is drawn towards those of the key, the system prompt and the session, and
-- moved by how far outputs of the same message lay off, whoever asked; each as far as it has proved to tell anything
-- beyond those before it (`credibility.lua`). What a history has told of a model is believed of that model first.
local credibility = require "tokenweir.core.prediction.credibility"
local ffi = require "ffi"
local history = require "tokenweir.core.prediction.history"

local log, max, sqrt = math.log, math.max, math.sqrt
local add, find, shrunk, touch = history.add, history.find, history.shrunk, history.touch
local begin, believe = credibility.begin, credibility.learn

ffi.cdef [[ typedef struct { tw_belief key, system, session, prompt; } tw_beliefs; ]]
local beliefs_of = ffi.typeof("tw_beliefs")

--- Completions that count (1/e): per model, key or system prompt, session, message.
local MODEL_WINDOW, KEY_WINDOW, SESSION_WINDOW, PROMPT_WINDOW = 200, 100, 5, 20
--- Completions as which the prior counts.
local MODEL_STRENGTH = 10

local _M = { MODEL_WINDOW = MODEL_WINDOW, KEY_WINDOW = KEY_WINDOW, MODEL_STRENGTH = MODEL_STRENGTH }

--- @param all what is believed of all models' histories; nil for that itself
-- @return tw_beliefs, how far the histories of one model are believed
function _M.beliefs(all)
  local of = beliefs_of()
  begin(of.key, all and all.key)
  begin(of.system, all and all.system)
  begin(of.session, all and all.session)
  begin(of.prompt, all and all.prompt)
  return of
end

--- @tparam number sets of the histories of keys; those of system prompts are twice, of sessions and messages four
--   times as many
function _M.new(sets)
  return {
    keys = history.new(sets, KEY_WINDOW),
    systems = history.new(2 * sets, KEY_WINDOW),
    sessions = history.new(4 * sets, SESSION_WINDOW),
    -- Of the same message, whatever the model: how far its outputs lay from what was expected without it.
    prompts = history.new(4 * sets, PROMPT_WINDOW),
    beliefs = _M.beliefs(),
  }
end

local function mean_of(of_model)
  local row = of_model.row
  return (row.count * row.mean + MODEL_STRENGTH * of_model.prior) / (row.count + MODEL_STRENGTH)
end

local function of_key(past, of_model, request)
  return request.key_id ~= 0 and find(past.keys, request.key_id + of_model.identity) or nil
end

local function of_system(past, of_model, request)
  return request.system_id ~= 0 and find(past.systems, request.system_id + of_model.identity) or nil
end

local function of_session(past, of_model, request)
  return request.session_id ~= 0 and find(past.sessions, request.session_id + of_model.identity) or nil
end

local function of_prompt(past, request)
  return request.prompt_id ~= 0 and find(past.prompts, request.prompt_id) or nil
end

--- Writes the features of the past.
-- @param past of `new`
-- @param of_model table: `identity`, `row` (tw_past), `prior`, `prior_spread`, `beliefs`
-- @param request as of `estimator.predict`
-- @param x tw_features
-- @return the key's row (tw_past *), or nil
function _M.read(past, of_model, request, x)
  local row, beliefs = of_model.row, of_model.beliefs
  local count, mean = row.count, mean_of(of_model)
  local prior_variance = of_model.prior_spread * of_model.prior_spread
  x.model_spread = sqrt((count * row.variance + MODEL_STRENGTH * prior_variance) / (count + MODEL_STRENGTH))
  x.model_count = log(1 + count)

  local key = of_key(past, of_model, request)
  local base = shrunk(key, mean, beliefs.key.strength)
  if key ~= nil then
    x.key_shift, x.key_spread, x.key_count = key.mean - mean, sqrt(key.variance), log(1 + key.count)
  else
    x.key_shift, x.key_spread, x.key_count = 0, 0, 0
  end
  local system = of_system(past, of_model, request)
  base = shrunk(system, base, beliefs.system.strength)
  if system ~= nil then
    x.system_shift, x.system_spread, x.system_count = system.mean - mean, sqrt(system.variance), log(1 + system.count)
  else
    x.system_shift, x.system_spread, x.system_count = 0, 0, 0
  end
  local session = of_session(past, of_model, request)
  if session ~= nil then
    x.session_shift, x.session_count = session.mean - base, log(1 + session.count)
    x.session_last = session.last - base
    base = shrunk(session, base, beliefs.session.strength)
  else
    x.session_shift, x.session_count, x.session_last = 0, 0, 0
  end
  local prompt = of_prompt(past, request)
  if prompt ~= nil then
    x.prompt_shift, x.prompt_count = prompt.mean, log(1 + prompt.count)
    base = base + prompt.count / (prompt.count + beliefs.prompt.strength) * prompt.mean
  else
    x.prompt_shift, x.prompt_count = 0, 0
  end
  x.base = base
  return key
end

--- The key's row, made where there is none. @return tw_past *, or nil where the request has no key
local function touch_key(past, of_model, request, now)
  return request.key_id ~= 0 and touch(past.keys, request.key_id + of_model.identity, now) or nil
end
_M.key = touch_key

-- What is expected with one more history. @param off of the history's mean, from what is expected without it
local function believed(row, off, value, level, own, all)
  believe(all, nil, value - level, off, row.count)
  believe(own, all, value - level, off, row.count)
  return level + row.count / (row.count + own.strength) * off
end

-- How far each history tells something beyond those before it. Returns what is expected of all but the message.
local function judge(past, of_model, request, value)
  local own, all, level = of_model.beliefs, past.beliefs, mean_of(of_model)
  local key = of_key(past, of_model, request)
  if key ~= nil and key.count > 0 then
    level = believed(key, key.mean - level, value, level, own.key, all.key)
  end
  local system = of_system(past, of_model, request)
  if system ~= nil then
    level = believed(system, system.mean - level, value, level, own.system, all.system)
  end
  local session = of_session(past, of_model, request)
  if session ~= nil then
    level = believed(session, session.mean - level, value, level, own.session, all.session)
  end
  local prompt = of_prompt(past, request)
  if prompt ~= nil then
    believed(prompt, prompt.mean, value, level, own.prompt, all.prompt)
  end
  return level
end

--- Takes what a request came to.
-- @param request as `read` had it
-- @tparam number value ln(1 + output), or what is to be expected where it was cut short
-- @tparam number output tokens; @tparam boolean whole whether it was not broken off
function _M.learn(past, of_model, request, value, output, whole, now)
  local row, id = of_model.row, of_model.identity
  local level = judge(past, of_model, request, value)
  add(row, MODEL_WINDOW, value)
  if whole then
    of_model.mean = of_model.mean + max(1 / row.count, 1 / MODEL_WINDOW) * (output - of_model.mean)
  end
  local key = touch_key(past, of_model, request, now)
  if key ~= nil then
    add(key, KEY_WINDOW, value)
  end
  if request.system_id ~= 0 then
    add(touch(past.systems, request.system_id + id, now), KEY_WINDOW, value)
  end
  if request.session_id ~= 0 then
    add(touch(past.sessions, request.session_id + id, now), SESSION_WINDOW, value)
  end
  if request.prompt_id ~= 0 then
    add(touch(past.prompts, request.prompt_id, now), PROMPT_WINDOW, value - level)
  end
end

--- Takes what is known elsewhere of a key or system prompt, where it is more than is known here.
-- @param seed `of` ("key" or "system"), `number`, `count`, `mean`, `variance`
function _M.seed(past, of_model, seed, now)
  local row = touch(seed.of == "key" and past.keys or past.systems, seed.number + of_model.identity, now)
  if 2 * row.count < seed.count then
    row.count, row.mean, row.variance = seed.count, seed.mean, seed.variance
  end
end

return _M
