--- How long one will wait. Two things tell of it:
--   the work that stands before it, over the rate at which work goes to the backends: too little where others come
--   later and go before, as everybody does before a flood;
--   how far V has to rise to its tag, over how fast V rises: that knows of them, but V rises in jumps.
-- Where the second is longer, their geometric mean is taken. While somebody waits, what goes is what backends release,
-- so both rates are measured on what the queue serves.
--
-- What is still wrong is learned, by how long the wait was reckoned, as the ratio of what waits were to that: places
-- come free in lumps, so those at the front wait for longer than their work alone says.
local memory = require "tokenweir.core.queue.memory"

local exp, log, max, min, sqrt = math.exp, math.log, math.max, math.min, math.sqrt

--- The rate's memory; and how long the rate before counts as much as what was measured, when waiting begins.
local MEMORY_MS, CLOCK_MEMORY_MS, TRUST_MS = 10000, 20000, 4000
--- For so long after waiting began the rates are not believed: backends that have just been filled release little.
local SETTLED_MS = 5000
local SAMPLE_MS = 200
--- A rate of an earlier time with waiters is the best guess for so long.
local KNOWN_MS = 60000

local LEARN, MOST_FACTOR = 0.05, 8
--- Waits that are too short to tell anything.
local SHORT_MS = 50
--- Reckoned waits of up to so many ms, twice, four times as many ... are told apart.
local FIRST_STEP_MS, LAST_STEP = 125, memory.STEPS - 1
--- What is held before anything was learned, that reckoning is right, counts as so many waits.
local FIRST_COUNT = 2

local LONGEST_MS = 3600000

local _M = { SAMPLE_MS = SAMPLE_MS }

--- Somebody begins to wait where nobody did.
-- @param queue tw_queue; @param served work served by all so far
-- @param guess function -> work a ms, asked where nothing was measured lately
function _M.begin(queue, served, now, guess)
  if queue.rate <= 0 or now - queue.sampled_at > KNOWN_MS then
    queue.rate, queue.clock_rate = guess and guess() or 0, 0
  end
  queue.sampled, queue.sampled_at, queue.began_at, queue.clock_sampled = served, now, now, queue.clock
  queue.trust = queue.rate > 0 and TRUST_MS or 0
  queue.clock_trust = queue.clock_rate > 0 and TRUST_MS or 0
end

--- Measures; to be called while somebody waits.
function _M.sample(queue, served, now)
  local passed = now - queue.sampled_at
  if passed < SAMPLE_MS then
    return
  end
  local rate = max(0, served - queue.sampled) / passed
  local clock_rate = max(0, queue.clock - queue.clock_sampled) / passed
  queue.sampled, queue.sampled_at, queue.clock_sampled = served, now, queue.clock
  -- At first the mean of all that was measured, with what was known before counted as `trust` ms of it.
  local elapsed = now - queue.began_at
  local share = max(1 - exp(-passed / MEMORY_MS), passed / (elapsed + queue.trust))
  queue.rate = queue.rate + share * (rate - queue.rate)
  share = max(1 - exp(-passed / CLOCK_MEMORY_MS), passed / (elapsed + queue.clock_trust))
  queue.clock_rate = queue.clock_rate + share * (clock_rate - queue.clock_rate)
end

--- Whether the rate was measured in this time of waiting, and is no guess.
function _M.is_measured(queue, now)
  return now - queue.began_at > SETTLED_MS
end

--- @param work that is to go until it is served, its own included; @param tag or nil
-- @return ms, before what was learned; or nil: nothing is known of the rate
function _M.raw(queue, work, tag)
  if queue.rate <= 0 then
    return nil
  end
  local ms = work / queue.rate
  if tag and queue.clock_rate > 0 then
    local rise = (tag - queue.clock) / queue.clock_rate
    if rise > ms then
      ms = sqrt(ms * rise)
    end
  end
  return min(LONGEST_MS, ms)
end

local function step_of(raw)
  local step, upper = 0, FIRST_STEP_MS
  while step < LAST_STEP and raw > upper do
    step, upper = step + 1, 2 * upper
  end
  return step
end

--- The ratio that was learned for waits that are reckoned like this one.
function _M.factor(queue, raw)
  local factor = queue.factor[step_of(raw)]
  return factor > 0 and factor or 1
end

--- One went that had been reckoned to wait `raw` ms and waited `waited`.
function _M.learn(queue, raw, waited)
  if max(raw, waited) < SHORT_MS then
    return
  end
  local step = step_of(raw)
  local count = queue.learned[step] + 1
  local ratio = log(max(1 / MOST_FACTOR, min(MOST_FACTOR, waited / max(raw, 1))))
  local known = log(_M.factor(queue, raw))
  queue.learned[step] = count
  queue.factor[step] = exp(known + max(LEARN, 1 / (count + FIRST_COUNT)) * (ratio - known))
end

return _M
