--- The distribution of a request's output, from three quantiles and the shape that is common to all requests.
--
-- ln(1 + output) has the median m; below it, quantiles lie at m - lower * low[k], above it at m + upper * high[k],
-- where `lower` and `upper` are the request's own distances of the 10 % and 90 % quantiles from the median, and `low`
-- and `high` are measured on outputs that no training saw. Each of the 2 * STEPS points stands for an equal share of
-- probability, so mean and deviation of min(output, limit) are plain averages, whatever the limit.
local ffi = require "ffi"

local exp, log, max, min, sqrt = math.exp, math.log, math.max, math.min, math.sqrt

--- Points on each side of the median.
local STEPS = 8
-- No engine produces more; keeps everything finite.
local MOST_LOG = log(2 ^ 24)

local _M = { STEPS = STEPS }

--- @tparam table low, high STEPS distances each, nearest to the median first
-- @treturn table the shape
function _M.shape(low, high)
  local shape = { low = ffi.new("double[?]", STEPS), high = ffi.new("double[?]", STEPS) }
  for k = 1, STEPS do
    shape.low[k - 1], shape.high[k - 1] = low[k], high[k]
  end
  return shape
end

--- Mean and standard deviation of min(output, limit).
-- @tparam number limit tokens, or nil
-- @treturn number mean, standard deviation, tokens
function _M.moments(shape, median, lower, upper, limit)
  local low, high = shape.low, shape.high
  local most = limit and min(log(1 + limit), MOST_LOG) or MOST_LOG
  local first, second = 0, 0
  for k = 0, STEPS - 1 do
    local a = exp(max(0, min(median - lower * low[k], most))) - 1
    local b = exp(max(0, min(median + upper * high[k], most))) - 1
    first, second = first + (a + b), second + (a * a + b * b)
  end
  first, second = first / (2 * STEPS), second / (2 * STEPS)
  return first, sqrt(max(0, second - first * first))
end

--- The expected ln(1 + output) of a request whose output was cut short at `cut` tokens.
function _M.beyond(shape, median, lower, upper, cut)
  local low, high = shape.low, shape.high
  local least = log(1 + cut)
  local sum, count = 0, 0
  for k = 0, STEPS - 1 do
    local a, b = median - lower * low[k], median + upper * high[k]
    if a > least then
      sum, count = sum + a, count + 1
    end
    if b > least then
      sum, count = sum + b, count + 1
    end
  end
  -- Beyond all points: a tail as steep as the last of them.
  return count > 0 and sum / count or least + 0.25 * upper
end

return _M
