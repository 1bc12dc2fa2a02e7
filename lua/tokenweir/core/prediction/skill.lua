--- Whether predictions are better than the running figures they are to improve on: the skill score of forecasters,
-- 1 - loss / loss of the reference, from losses that forget.
--
-- The loss of a prediction is the pinball loss of its median and of its 90 % quantile (Koenker and Bassett, 1978):
-- what a wrong quantile costs, in tokens. The predictor is left when it is clearly worse, and taken up again when it
-- is not.
local ffi = require "ffi"

ffi.cdef [[ typedef struct { double count, loss, reference; bool left; } tw_skill; ]]
local skill = ffi.typeof("tw_skill")

local WINDOW = 200
local AT_LEAST = 50
local LEAVE, RETURN = 1.03, 1.0

local _M = { WINDOW = WINDOW, AT_LEAST = AT_LEAST }

--- Pinball loss of a quantile at `level`.
local function pinball(actual, quantile, level)
  local off = actual - quantile
  return off >= 0 and level * off or (level - 1) * off
end
_M.pinball = pinball

--- @return tw_skill, the state of one model
function _M.new()
  return (skill())
end

--- Takes one output.
-- @param state of `new`; `left` says whether the running figures are to be served
-- @tparam number actual output tokens
-- @tparam number median, q90 as the predictor would have said
-- @tparam number running_median, running_q90 as the running figures would have
-- @treturn boolean whether `left` has changed
function _M.judge(state, actual, median, q90, running_median, running_q90)
  local keep = 1 - 1 / WINDOW
  state.count = state.count + 1
  state.loss = keep * state.loss + pinball(actual, median, 0.5) + pinball(actual, q90, 0.9)
  state.reference = keep * state.reference + pinball(actual, running_median, 0.5) + pinball(actual, running_q90, 0.9)
  if state.count < AT_LEAST then
    return false
  end
  local left = state.left
  if left then
    left = state.loss > RETURN * state.reference
  else
    left = state.loss > LEAVE * state.reference
  end
  local changed = left ~= state.left
  state.left = left
  return changed
end

--- 1 - loss / reference: above 0 the predictor is better; 0 before anything is known.
function _M.score(state)
  return state.reference > 0 and 1 - state.loss / state.reference or 0
end

return _M
