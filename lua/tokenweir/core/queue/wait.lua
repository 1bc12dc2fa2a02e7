--- How long one will wait: the work that stands before it, over the rate at which work goes to the backends.
--
-- While somebody waits, what goes is what backends release, so the rate is measured on what the queue serves. Those who
-- come later and go before are not in the work ahead; what that makes is learned per class, as the ratio of what waits
-- were to what they were reckoned.
local exp, log, max, min = math.exp, math.log, math.max, math.min

--- The rate's memory; and how long the rate before counts as much as what was measured, when waiting begins.
local MEMORY_MS, TRUST_MS = 10000, 2000
local SAMPLE_MS = 200
--- A rate of an earlier time with waiters is the best guess for so long.
local KNOWN_MS = 60000

local LEARN, MOST_FACTOR = 0.05, 4
--- Waits that are too short to tell anything.
local SHORT_MS = 250

local LONGEST_MS = 3600000

local _M = { SAMPLE_MS = SAMPLE_MS }

--- Somebody begins to wait where nobody did.
-- @param queue tw_queue; @param served work served by all so far
-- @param guess function -> work a ms, asked where nothing was measured lately
function _M.begin(queue, served, now, guess)
  if queue.rate <= 0 or now - queue.sampled_at > KNOWN_MS then
    queue.rate = guess and guess() or 0
  end
  queue.sampled, queue.sampled_at, queue.began_at = served, now, now
  queue.trust = queue.rate > 0 and TRUST_MS or 0
end

--- Measures; to be called while somebody waits.
function _M.sample(queue, served, now)
  local passed = now - queue.sampled_at
  if passed < SAMPLE_MS then
    return
  end
  local rate = max(0, served - queue.sampled) / passed
  queue.sampled, queue.sampled_at = served, now
  -- At first the mean of all that was measured, with the rate before counted as `trust` ms of it.
  local share = max(1 - exp(-passed / MEMORY_MS), passed / (now - queue.began_at + queue.trust))
  queue.rate = queue.rate + share * (rate - queue.rate)
end

--- Whether the rate was measured in this time of waiting, and is no guess.
function _M.is_measured(queue, now)
  return now - queue.began_at > TRUST_MS
end

--- @param work that is to go until it is served, its own included
-- @return ms, before what was learned; or nil: nothing is known of the rate
function _M.raw(queue, work)
  return queue.rate > 0 and min(LONGEST_MS, work / queue.rate) or nil
end

--- The ratio that was learned for a class.
function _M.factor(queue, class)
  local factor = queue.factor[class]
  return factor > 0 and factor or 1
end

--- One went that had been reckoned to wait `raw` ms and waited `waited`.
function _M.learn(queue, class, raw, waited)
  if max(raw, waited) < SHORT_MS then
    return
  end
  local ratio = log(max(1 / MOST_FACTOR, min(MOST_FACTOR, waited / max(raw, 1))))
  local known = log(_M.factor(queue, class))
  queue.factor[class] = exp(known + LEARN * (ratio - known))
end

return _M
