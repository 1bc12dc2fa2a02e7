--- Predicted output length from running figures of a model's completions: what serves until a predictor is trained.
--
-- With X the output tokens, ln(1 + X) is taken to be normal with mean mu = ln(1 + median) and standard deviation s.
-- A request produces min(X, max_tokens); with Y = 1 + X, L = 1 + max_tokens and P the normal distribution function:
--   E[min(Y, L)^k] = exp(k mu + k^2 s^2 / 2) * P((ln L - mu - k s^2) / s) + L^k * (1 - P((ln L - mu) / s))
-- which gives the mean (k = 1) and the variance (k = 2). That is the limited expected value of actuaries.
local type = type
local exp, log, sqrt, abs, max, min = math.exp, math.log, math.sqrt, math.abs, math.max, math.min

-- Before anything is measured: median and spread of the Azure conversation trace of 2023 (19,366 requests).
local PRIOR_MEDIAN = 129
local PRIOR_SPREAD = 0.85
-- The prior counts as so many completions.
local PRIOR_COUNT = 10
local MIN_SPREAD, MAX_SPREAD = 0.05, 3
local Z90 = 1.2815515655446004
-- Keeps everything finite.
local MOST_TOKENS = require("tokenweir.contract").numbers.most_tokens

local _M = { PRIOR_MEDIAN = PRIOR_MEDIAN, PRIOR_SPREAD = PRIOR_SPREAD }

--- Normal distribution function, by the rational approximation 26.2.17 of Abramowitz and Stegun (error < 7.5e-8).
local function normal(x)
  local t = 1 / (1 + 0.2316419 * abs(x))
  local tail = exp(-0.5 * x * x) * 0.3989422804014327
    * t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
  return x >= 0 and 1 - tail or tail
end

--- E[min(Y, L)^k] of a lognormal Y.
local function limited(k, mu, s, log_limit)
  local at = (log_limit - mu) / s
  return exp(k * mu + 0.5 * k * k * s * s) * normal(at - k * s) + exp(k * log_limit) * (1 - normal(at))
end

local function finite(x, default)
  if type(x) ~= "number" or x ~= x or x < 0 or x > 1e15 then
    return default
  end
  return x
end

--- @param stats table or nil: `count`, `mean`, `median`, `spread` (standard deviation of ln(1 + output)) of one model
-- @param max_tokens number or nil: most output tokens of one sequence
-- @param threshold output tokens from which a request is of class "high"
-- @param prior number or nil: median before anything is measured
-- @param out table; written: `mean`, `median`, `q90`, `sd` of min(X, max_tokens) of one sequence, and `class`.
--   A request of n choices is n sequences of these.
-- @return out
function _M.predict(stats, max_tokens, threshold, prior, out)
  local count = stats and finite(stats.count, 0) or 0
  local share = count / (count + PRIOR_COUNT)
  local mu, s = log(1 + min(finite(prior, PRIOR_MEDIAN), MOST_TOKENS)), PRIOR_SPREAD
  if share > 0 then
    local median = min(finite(stats.median, PRIOR_MEDIAN), MOST_TOKENS)
    local spread = finite(stats.spread, PRIOR_SPREAD)
    mu = mu + share * (log(1 + median) - mu)
    -- The spread for which a lognormal of this median has the measured mean: it tells the tail better than the
    -- logarithms do. Far from them it is noise.
    local mean = finite(stats.mean, 0)
    local squared = 2 * log((1 + min(mean, MOST_TOKENS)) / (1 + median))
    local by_mean = sqrt(max(squared, 0))
    spread = max(0.5 * spread, min(by_mean, 1.5 * spread))
    s = s + share * (spread - s)
  end
  s = max(MIN_SPREAD, min(s, MAX_SPREAD))

  local limit = MOST_TOKENS
  if max_tokens and max_tokens == max_tokens and max_tokens < limit then
    limit = max(max_tokens, 0)
  end
  local log_limit = log(1 + limit)
  local first, second = limited(1, mu, s, log_limit), limited(2, mu, s, log_limit)
  local median = min(exp(mu) - 1, limit)
  out.mean = max(0, min(first - 1, limit))
  out.sd = min(sqrt(max(0, second - first * first)), limit / 2)  -- nothing within 0 .. limit spreads wider
  out.median = median
  out.q90 = min(exp(mu + Z90 * s) - 1, limit)
  out.class = median < threshold and "low" or "high"
  return out
end

return _M
