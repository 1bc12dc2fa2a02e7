--- Whether a backend has room for a request: by predicted peak where its capacity is known, by a number of sequences
-- where only that is known, always where neither is.
local demand = require "tokenweir.core.backend.demand"
local peak = require "tokenweir.core.backend.peak"
local step_time = require("tokenweir.core.backend.step_time").of

local bound, deviation, walk = peak.bound, peak.deviation, peak.walk
local max, measure = math.max, demand.measure

local NO, MAYBE, YES = 0, 1, 2

-- One pick runs at a time in a worker, and none yields.
local wanted = {}

--- Engines hand their memory out in blocks: each sequence leaves up to a block's rest unused.
local BLOCK = 16
--- An engine that preempts loses time where it is full, and no request. It is filled up to just below where it would
-- let no further request in (vLLM leaves 1 % free), and no margin is kept for what was predicted too short. Its peak
-- may be a tenth above its capacity: buckets count too high, and memory that stands empty costs more than it costs to
-- evict one request in fifty.
local PREEMPTING_CAP, PREEMPTING_PEAK = 0.97, 1.1

--- Of what a backend may hold, what is so much that a few requests more could exceed it.
local TIGHT = 0.5

local _M = { NO = NO, MAYBE = MAYBE, YES = YES }

-- The share of its capacity that backend i may hold at once.
local function cap(view, i)
  return view.fleet.preempts[i] ~= 0 and PREEMPTING_CAP or view.settings.kv_cap
end

--- The most sequences that backend i takes at once, 0: no number bounds it. Where the engine itself lets requests wait,
-- it is as many as it runs: what is predicted of those it has is wrong then, or others send there too.
local function most_sequences(view, i)
  local concurrency, lets_in = view.fleet.concurrency[i], view.fleet.lets_in[i]
  if lets_in == 0 or view.stale or concurrency > 0 and concurrency < lets_in then
    return concurrency
  end
  return lets_in
end

-- What the predicted peak on backend i may come to.
local function most(view, i, own)
  local row, capacity = view.load[i], view.fleet.capacity[i]
  local rests = BLOCK * (row.n + own.n)
  if view.fleet.preempts[i] ~= 0 then
    return PREEMPTING_PEAK * capacity - rests
  end
  return capacity - rests - view.settings.z * deviation(row, own, view.settings.common_deviation)
end

--- What the totals alone can say.
-- @param view see `policy/init.lua`; @param i index in the fleet; @param own see `demand.measure`
-- @return NO, YES, or MAYBE: the buckets decide (`fits`)
function _M.glance(view, i, own)
  local fleet, row = view.fleet, view.load[i]
  local concurrency, capacity = most_sequences(view, i), fleet.capacity[i]
  -- An idle backend takes a request of more choices than its limit: it would wait for ever otherwise.
  -- What is mostly so is asked first: whether a backend is idle differs from one to the next.
  if row.n + own.n > concurrency and concurrency > 0 and row.n > 0 then
    return NO
  end
  if capacity <= 0 then
    return YES
  end
  if row.held + own.prompt > cap(view, i) * capacity then
    return NO
  end
  local highest = most(view, i, own)
  if bound(row, own) <= highest then
    return YES
  end
  -- The peak is never below what is held at once.
  return row.held + own.prompt <= highest and MAYBE or NO
end

--- Whether it is worth another look, once a request was reserved, whether others were at the same moment: a number
-- bounds the backend, or its memory is half full.
-- @param own see `demand.measure`, not yet counted
function _M.is_tight(view, i, own)
  local capacity = view.fleet.capacity[i]
  return most_sequences(view, i) > 0
    or capacity > 0 and view.load[i].held + own.prompt > TIGHT * cap(view, i) * capacity
end

--- Whether backend i has more than it takes.
-- @param row tw_load, all that it has
function _M.is_exceeded(view, i, row)
  local concurrency, capacity = most_sequences(view, i), view.fleet.capacity[i]
  return concurrency > 0 and row.n > concurrency or capacity > 0 and row.held > cap(view, i) * capacity
end

--- What the buckets say of a backend for which `glance` said MAYBE.
function _M.fits(view, i, own)
  local fill = view.fill_buckets
  if fill then
    fill(i)
  end
  return walk(view.load[i], own) <= most(view, i, own)
end

--- The backend that will have room for a request soonest: the least still to be released there, over how fast it
-- releases. One that was chosen before is kept, or what was freed for the request there would be given away.
-- @param kept index of that one, or nil
-- @return index, or nil: no candidate could ever have room
function _M.soonest(view, candidates, count, request, kept)
  measure(request, wanted)
  local fleet = view.fleet
  local best, least
  for k = 1, count do
    local i = candidates[k]
    local row, capacity, concurrency = view.load[i], fleet.capacity[i], most_sequences(view, i)
    if i == kept then
      return i
    end
    local each = row.n > 0 and (row.held + row.remaining) / row.n or 0
    local short = 0
    if capacity > 0 then
      short = bound(row, wanted) - most(view, i, wanted)
    end
    if concurrency > 0 and row.n > 0 then
      short = max(short, (row.n + wanted.n - concurrency) * each)
    end
    local ms = max(0, short) / max(_M.release_rate(view.load, fleet, i, wanted), 1e-9)
    if not best or ms < least then
      best, least = i, ms
    end
  end
  return best
end

--- Tokens that a backend releases in a ms, reckoned from what is on it: each of its requests leaves after about the
-- time that one of their mean size takes, or one like this where that is longer.
-- @param own see `demand.measure`, of a usual request
function _M.release_rate(load, fleet, i, own)
  local row = load[i]
  local tokens = row.held + row.remaining
  local step = step_time(fleet, i, row.n, row.held)
  local each = row.n > 0 and tokens / row.n or 0
  local output = max(own.expected, each - own.prompt)
  return tokens / (fleet.prefill[i] * own.prompt + output * step)
end

--- Tokens that the request needs of an empty backend i, by its predicted tail where that is what counts there.
-- Infinite spread must not hide in here: the figure is bounded by `demand.measure`.
local function need(view, i, own)
  local tokens = own.prompt + own.remaining + BLOCK * own.n
  if view.fleet.preempts[i] ~= 0 then
    return tokens
  end
  local settings = view.settings
  local common = settings.common_deviation * own.remaining
  return tokens + settings.z * (own.variance + common * common) ^ 0.5
end

--- Whether such a request may join backend i now. Where its mean fits the empty backend, and only the margin does
-- not, it waits until the peak fits too: elsewhere it would take the requests of others down with it, and an idle
-- backend always does. Where not even the mean fits, its prompt has to.
local function may_join(view, i, own)
  local row, capacity, concurrency = view.load[i], view.fleet.capacity[i], most_sequences(view, i)
  if concurrency > 0 and row.n > 0 and row.n + own.n > concurrency then
    return false
  end
  if own.prompt + own.remaining <= capacity then
    return bound(row, own) <= capacity
  end
  local share = cap(view, i) * capacity
  return row.held + own.prompt <= (own.prompt <= share and share or capacity)
end

--- Where a request goes that would not fit even an empty backend by its predicted tail: to the emptiest. A
-- prediction alone makes no request impossible, and nobody waits behind it for what cannot come. One whose prompt
-- alone exceeds the largest backend goes at once: the engine says so better than we can.
-- @return index, or nil: it is no such request, or there is no place for it yet
function _M.emptiest(view, candidates, count, own)
  local fleet, load, prompt = view.fleet, view.load, own.prompt
  local largest = 0
  for k = 1, count do
    local i = candidates[k]
    local capacity = fleet.capacity[i]
    if capacity <= 0 or (need(view, i, own) <= capacity and prompt <= cap(view, i) * capacity) then
      return nil
    end
    if capacity > largest then
      largest = capacity
    end
  end
  local best, least
  for k = 1, count do
    local i = candidates[k]
    if prompt > largest or may_join(view, i, own) then
      local use = (load[i].held + load[i].remaining) / fleet.capacity[i]
      if not best or use < least then
        best, least = i, use
      end
    end
  end
  return best
end

return _M
