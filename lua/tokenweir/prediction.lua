--- What a request will need: tokens of its prompt, and the length of its answer by the running figures of its model.
local running = require "tokenweir.core.running"

local ceil, max = math.ceil, math.max
local predict = running.predict

local TOKENS_PER_BYTE = 0.25
--- What chat templates put around a message.
local TOKENS_PER_MESSAGE = 4
--- A picture or a sound: engines make some hundreds of tokens of one.
local TOKENS_PER_MEDIUM = 512
local CLASS_THRESHOLD = 50

local _M = {}

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

-- Embeddings produce no tokens. Of what is not understood (a picture to be edited, a file) nothing is known, least of
-- all by its size in bytes: it is one sequence in flight.
local function of_no_output(r)
  r.mean, r.median, r.q90, r.sd, r.class = 1, 1, 1, 0, "low"
end

--- Fills `prompt`, `n`, `max_tokens`, `mean`, `median`, `q90`, `sd`, `class` and `tokens_per_event` of a record.
-- @param known `state.current()`
function _M.fill(r, known)
  local stats = known.stats and known.stats.models[r.model]
  local parsed = r.parsed
  r.tokens_per_event = stats and stats.tokens_per_event or 1
  if parsed.kind then
    local tokens = parsed.prompt_bytes * (stats and stats.tokens_per_byte or TOKENS_PER_BYTE)
    r.prompt = ceil(tokens + (parsed.prompt_tokens or 0) + TOKENS_PER_MESSAGE * parsed.messages
      + TOKENS_PER_MEDIUM * parsed.media)
    r.prompt_bytes = parsed.prompt_bytes
    r.n = parsed.prompts * max(parsed.n, parsed.best_of or 1)
    r.max_tokens, r.stream = parsed.max_tokens, parsed.stream
  end
  if r.kind == "embeddings" or r.kind == "other" and not r.stream then
    return of_no_output(r)
  end
  local thresholds = known.thresholds
  predict(stats, r.max_tokens, thresholds and thresholds.class_threshold or CLASS_THRESHOLD,
    prior_of(known.settings, r.model), r)
end

return _M
