--- Tokens of a prompt as its model counts them: the estimate by script, times what the engine's own counts say.
--
-- The estimate (`features.lua`) is that of one tokenizer; others differ from it by a factor that hardly depends on the
-- text. It is the ratio of two sums that forget, per model, from the engines' `usage.prompt_tokens`.
local ceil, max, min = math.ceil, math.max, math.min

--- What chat templates put around a message.
local PER_MESSAGE = 4
--- A picture or a sound: engines make some hundreds of tokens of one.
local PER_MEDIUM = 512
local WINDOW = 200
--- Tokens as which a factor of 1 counts.
local BALLAST = 500
local LEAST, MOST = 0.1, 10

local _M = { PER_MESSAGE = PER_MESSAGE, PER_MEDIUM = PER_MEDIUM }

--- @treturn table what is known of one model's tokenizer
function _M.new()
  return { told = 0, estimated = 0 }
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
  local factor = (of.told + BALLAST) / (of.estimated + BALLAST)
  return ceil(raw * max(LEAST, min(factor, MOST)) + PER_MEDIUM * media)
end

--- Takes what an engine counted. Prompts with media tell nothing of the text.
-- @tparam number raw as it was estimated
-- @tparam number told the engine's `prompt_tokens`
function _M.learn(of, raw, told, media)
  if media > 0 or raw <= 0 or told <= 0 then
    return
  end
  local keep = 1 - 1 / WINDOW
  of.told, of.estimated = keep * of.told + told, keep * of.estimated + raw
end

return _M
