--- How far a history is to be believed against what was expected without it: the credibility of actuaries (Buehlmann,
-- ASTIN Bulletin 1967), an empirical Bayes estimate.
--
-- The mean of n outputs of one key is believed with weight n / (n + strength), where `strength` is the variance of
-- outputs within a key over that between keys. Both are measured as outputs come in. The product of what an output and
-- what the mean of those before it lie off the expectation is, on average, the variance between keys: chance strikes
-- the two independently. So keys that are all alike tell nothing however much is known of them, and a system prompt
-- that goes with its key tells nothing that the key did not tell.
local ffi = require "ffi"

local max, min = math.max, math.min

ffi.cdef [[ typedef struct { double count, together, noise, strength; } tw_belief; ]]
local belief = ffi.typeof("tw_belief")

--- Outputs that count (1/e).
local WINDOW = 400
--- What is believed before anything is measured, as so many outputs.
local STRENGTH, NOISE, BALLAST = 4, 0.5, 10
local LEAST, MOST = 1, 200

local _M = {}

local function estimate(of, all)
  local together, noise = NOISE / STRENGTH, NOISE
  if all then
    together = (all.together + BALLAST * together) / (all.count + BALLAST)
    noise = (all.noise + BALLAST * noise) / (all.count + BALLAST)
  end
  together, noise = of.together + BALLAST * together, of.noise + BALLAST * noise
  of.strength = max(LEAST, min(noise / max(together, 1e-4 * noise), MOST))
end

--- Begins to measure.
-- @param of tw_belief; `strength`: outputs as which the expectation counts
-- @param all what holds of all models, from which a model's own begins; nil for that itself
function _M.begin(of, all)
  of.count, of.together, of.noise, of.strength = 0, 0, 0, STRENGTH
  estimate(of, all)
end

--- @param all see `begin`
-- @return tw_belief
function _M.new(all)
  local of = belief()
  _M.begin(of, all)
  return of
end

--- Takes one output.
-- @param of, all as of `begin`
-- @tparam number off how far it lay from what was expected without the history; @tparam number shift how far the
--   history's mean lies from that; @tparam number count outputs that the history is of
function _M.learn(of, all, off, shift, count)
  local keep, weight, rest = 1 - 1 / WINDOW, count / (count + STRENGTH), off - shift
  of.count = keep * of.count + weight
  of.together = keep * of.together + weight * off * shift
  of.noise = keep * of.noise + weight * rest * rest * count / (count + 1)
  estimate(of, all)
end

return _M
