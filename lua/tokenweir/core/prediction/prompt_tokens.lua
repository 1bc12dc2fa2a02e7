--- Tokens of a prompt as its model counts them: a line through what the engines counted, over the estimate by script.
--
-- The estimate (`features.lua`) is that of one tokenizer. Others differ from it by a factor that hardly depends on the
-- text, and chat templates add a constant; both are fitted per model by weighted least squares with weights that
-- forget, to the engines' own `usage.prompt_tokens`. Errors count relative to the size.
local ffi = require "ffi"

local ceil, max, min = math.ceil, math.max, math.min

ffi.cdef [[ typedef struct { double w, x, y, xx, xy, factor, constant; } tw_tokenizer; ]]
local tokenizer = ffi.typeof("tw_tokenizer")

--- What chat templates put around a message.
local PER_MESSAGE = 4
--- A picture or a sound: engines make some hundreds of tokens of one.
local PER_MEDIUM = 512
local WINDOW = 200
--- Before anything is told the line is the estimate itself, as if these sizes had been counted so, each this often.
local SMALL, LARGE, OFTEN = 16, 512, 0.2
--- Added to a size before its square divides an error: a token more or less of a tiny prompt is no matter.
local FLOOR = 16
local LEAST_FACTOR, MOST_FACTOR = 0.1, 10
local MOST_CONSTANT = 10000

local _M = { PER_MESSAGE = PER_MESSAGE, PER_MEDIUM = PER_MEDIUM }

-- One count: `raw` estimated, `told` by the engine.
local function add(of, raw, told, share)
  local size = raw + FLOOR
  local weight = share / (size * size)
  of.w, of.x, of.y = of.w + weight, of.x + weight * raw, of.y + weight * told
  of.xx, of.xy = of.xx + weight * raw * raw, of.xy + weight * raw * told
end

local function fit(of)
  local spread = of.w * of.xx - of.x * of.x
  local factor = max(LEAST_FACTOR, min((of.w * of.xy - of.x * of.y) / spread, MOST_FACTOR))
  of.factor, of.constant = factor, max(-FLOOR, min((of.y - factor * of.x) / of.w, MOST_CONSTANT))
end

--- @return tw_tokenizer, what is known of one model's tokenizer
function _M.new()
  local of = tokenizer()
  of.factor = 1
  add(of, SMALL, SMALL, OFTEN)
  add(of, LARGE, LARGE, OFTEN)
  return of
end

--- What the text of a prompt and its chat template come to before correction.
-- @tparam number tokens `estimated_tokens` of the request
-- @tparam number messages
function _M.raw(tokens, messages)
  return tokens + PER_MESSAGE * max(messages, 1)
end

--- @param of of `new`
-- @tparam number raw of `raw`
-- @tparam number media parts
-- @treturn number whole tokens
function _M.estimate(of, raw, media)
  return (ceil(max(1, of.factor * raw + of.constant) + PER_MEDIUM * media))
end

--- Takes what an engine counted. Prompts with media tell nothing of the text.
-- @tparam number raw as it was estimated
-- @tparam number told the engine's `prompt_tokens`
function _M.learn(of, raw, told, media)
  if media > 0 or raw <= 0 or told <= 0 then
    return
  end
  local keep = 1 - 1 / WINDOW
  of.w, of.x, of.y, of.xx, of.xy = keep * of.w, keep * of.x, keep * of.y, keep * of.xx, keep * of.xy
  add(of, raw, told, 1)
  -- All prompts of one size would leave the line undetermined.
  if of.w * of.xx - of.x * of.x > 1e-9 * of.w * of.xx then
    fit(of)
  end
end

return _M
