--- How long one will wait. Two things tell of it:
--   the work that stands before it, over the rate at which work goes to the backends: too little where others come
--   later and go before, as everybody does before a flood;
--   how far V has to rise to its tag, over how fast V rises: that knows of them, but V rises in jumps.
-- The longer one is taken. While somebody waits, what goes is what backends release, so both rates are measured on what
-- the queue serves.
--
-- What is said is the middle of the waits that were reckoned alike, or half of what nearly all of them do not exceed
-- where that is more: whoever plans with twice what was said is to be right. Both are learned, by how long the wait was
-- reckoned: places come free in lumps, so those at the front may wait for a multiple of what their work says.
local ffi = require "ffi"
local memory = require "tokenweir.core.queue.memory"

local fill, sizeof = ffi.fill, ffi.sizeof
local exp, max, min = math.exp, math.max, math.min

--- The rates' memories, in time during which somebody waited; and how long a guess counts beside what is measured.
local MEMORY_MS, CLOCK_MEMORY_MS, TRUST_MS = 15000, 10000, 1000
--- But nothing is forgotten before so many went after it: where one goes in a minute, a minute tells nothing.
local MEMORY_COUNT = 8
--- Before so much was measured, and so many went, the rates are not believed: backends that have just been filled
-- release little.
local SETTLED_MS, SETTLED_COUNT = 5000, 5
--- Nor is V's rise until then: a wait is no more than so many times what the work before it takes.
local MOST_UNSETTLED = 3
local SAMPLE_MS = 200
--- A rate of an earlier time with waiters is the best guess for so long.
local KNOWN_MS = 60000
--- But nobody is refused by it where it is so many times what the fleet's figures say, or so small a part of it: work
-- is predicted tokens, and what is predicted of such requests may have changed since.
local FAR = 2

--- Of the waits that were reckoned alike, the shares that are no longer than the two that are learned of them.
local MIDDLE, NEARLY_ALL = 1 / 2, 0.93
--- Twice what is said is to be enough for nearly all.
local TWICE = 2
--- A wait that is hardly longer than this is short, whatever was said: nobody is told more for its sake.
local BRIEF_MS = 1000
--- How far one wait moves the ratio that is learned, in its logarithm: much at first.
local LEARN, FIRST_LEARN, FIRST_COUNT = 0.05, 0.5, 2
--- Where nothing was learned; and its bounds. Below one it would learn from a lull and be wrong in the next rush.
local USUAL_FACTOR, LEAST_FACTOR, MOST_FACTOR = 1.1, 1, 3
--- The same of what nearly all do not exceed.
local USUAL_MOST, MOST_MOST = 2, 8
--- Waits that are too short to tell anything.
local SHORT_MS = 50
--- Reckoned waits of up to so many ms, twice, four times as many ... are told apart.
local FIRST_STEP_MS, LAST_STEP = 125, memory.STEPS - 1

local LONGEST_MS = 3600000

local _M = { SAMPLE_MS = SAMPLE_MS }

-- Whether the rate of an earlier time is far from what the fleet's figures say.
local function is_far(queue, rate)
  local measured = queue.work / queue.passed
  return rate > 0 and (measured > FAR * rate or FAR * measured < rate)
end

--- Somebody begins to wait where nobody did.
-- @param queue tw_queue; @param served work served by all so far
-- @param guess function -> work a ms, by the fleet's figures
function _M.begin(queue, served, now, guess)
  local rate = guess and guess() or 0
  if queue.passed <= 0 or now - queue.sampled_at > KNOWN_MS then
    local trust = rate > 0 and TRUST_MS or 0
    queue.work, queue.passed, queue.measured, queue.gone = rate * trust, trust, 0, 0
    queue.rise, queue.rise_passed = 0, 0
  elseif is_far(queue, rate) then
    queue.measured, queue.gone = 0, 0
  end
  queue.gone_sampled, queue.forgot_at = queue.gone, now
  queue.sampled, queue.sampled_at, queue.clock_sampled = served, now, queue.clock
end

--- Measures; to be called while somebody waits, and when the last one has gone.
function _M.sample(queue, served, now)
  local passed = now - queue.sampled_at
  local news = (queue.gone - queue.gone_sampled) / MEMORY_COUNT
  local age = now - queue.forgot_at
  if news > 0 then
    queue.forgot_at = now
  end
  local kept = exp(-min(age / MEMORY_MS, news))
  queue.work = kept * queue.work + max(0, served - queue.sampled)
  queue.passed = kept * queue.passed + passed
  kept = exp(-min(age / CLOCK_MEMORY_MS, news))
  queue.rise = kept * queue.rise + max(0, queue.clock - queue.clock_sampled)
  queue.rise_passed = kept * queue.rise_passed + passed
  queue.sampled, queue.sampled_at, queue.clock_sampled = served, now, queue.clock
  queue.measured, queue.gone_sampled = queue.measured + passed, queue.gone
end

--- Whether it is time to measure.
function _M.is_due(queue, now)
  return now - queue.sampled_at >= SAMPLE_MS
end

--- Whether the rate was measured, and is no guess.
function _M.is_measured(queue)
  return queue.measured > SETTLED_MS and queue.gone >= SETTLED_COUNT
end

--- @param work that is to go until it is served, its own included; @param tag or nil
-- @return ms, before what was learned; or nil: nothing is known of the rate
function _M.raw(queue, work, tag)
  if queue.work <= 0 then
    return nil
  end
  local ms = work * queue.passed / queue.work
  if tag and queue.rise > 0 then
    local rises = (tag - queue.clock) * queue.rise_passed / queue.rise
    ms = max(ms, _M.is_measured(queue) and rises or min(rises, MOST_UNSETTLED * ms))
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

--- What the middle of the waits that are reckoned like this one was, over what was reckoned.
function _M.factor(queue, raw)
  local factor = queue.factor[step_of(raw)]
  return factor > 0 and factor or USUAL_FACTOR
end

--- What nearly all of them did not exceed, over what was reckoned.
function _M.most(queue, raw)
  local most = queue.most[step_of(raw)]
  return most > 0 and most or USUAL_MOST
end

--- @param raw ms, as it was reckoned
-- @return ms that one is told
function _M.told(queue, raw)
  local middle, most = raw * _M.factor(queue, raw), raw * _M.most(queue, raw)
  return most > BRIEF_MS and max(middle, most / TWICE) or middle
end

-- A share of the waits is followed by steps up and down (Robbins and Monro), so that one odd wait moves it no farther
-- than any other.
local function follow(known, raw, waited, by, share, highest)
  local moved = known * exp(by * (waited > known * raw and share or share - 1))
  return max(LEAST_FACTOR, min(highest, moved))
end

--- One went that had been reckoned to wait `raw` ms and waited `waited`.
function _M.learn(queue, raw, waited)
  if max(raw, waited) < SHORT_MS then
    return
  end
  local step, factor, most = step_of(raw), _M.factor(queue, raw), _M.most(queue, raw)
  local count = queue.learned[step] + 1
  local by = max(LEARN, FIRST_LEARN / (count + FIRST_COUNT))
  queue.learned[step] = count
  queue.factor[step] = follow(factor, raw, waited, by, MIDDLE, MOST_FACTOR)
  queue.most[step] = follow(most, raw, waited, by, NEARLY_ALL, MOST_MOST)
end

--- What was learned of one order tells nothing of another.
function _M.forget(queue)
  fill(queue.factor, sizeof(queue.factor))
  fill(queue.most, sizeof(queue.most))
  fill(queue.learned, sizeof(queue.learned))
end

--- One gave up that had been reckoned to wait `raw` ms. That it waited for longer than what was said is known.
function _M.outlast(queue, raw, waited)
  if waited > _M.told(queue, raw) then
    _M.learn(queue, raw, waited)
  end
end

return _M
