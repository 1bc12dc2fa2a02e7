--- Online correction of quantiles, so that they are met as often as they say whatever the traffic does.
--
-- Adaptive conformal inference (Gibbs and Candes, NeurIPS 2021) on the quantile itself: an output above it moves it
-- up, one below moves it down, in the ratio that is at rest when the quantile is met as often as it should be. No
-- assumption about the outputs is needed: over a long time the share of misses comes to its level by the construction
-- alone.
local max, min = math.max, math.min

local _M = {}

--- The correction after one more output.
-- @tparam number correction so far, in units of the prediction's own width
-- @tparam boolean missed whether the output lay above the corrected quantile
-- @tparam number level share of outputs that should lie above, such as 0.1
-- @tparam number step how much one output moves it
-- @tparam number least, most bounds
function _M.follow(correction, missed, level, step, least, most)
  return (max(least, min(correction + step * ((missed and 1 or 0) - level), most)))
end

return _M
