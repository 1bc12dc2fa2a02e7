--- The elastic buffer of one model: who waits where no backend has room, and whose turn it is.
--
--   local q = queue.new(settings)                      -- for a process of its own: a test, the simulator
--   local w = { priority = "normal", flow = "key-a", work = 700, request = ... }
--   queue.push(q, w, now)
--   local w, found = queue.next(q, now, tide, try, hold)   -- again and again until it returns nil
--   queue.remove(q, w, now)                            -- one that gives up; whom `next` returns is out already
--   local position, ms, most, whole = queue.expect(q, w, now)
--
-- A waiter `w` is a table of the caller's:
--   priority  "high", "normal" or "low"
--   long      whether a long output is expected; only for the order `score`
--   flow      string; the waiters of one flow share its part
--   work      predicted tokens: prompt, and output of all choices
--   weight    of the flow (default 1), times that of the class
--   bytes     of the request (default 0)
--   label     string that others may know it by (default ""), up to 71 bytes
--   until_ms  when it gives up, where it does
-- and gets besides: key, tag, cost, flow_id, came, raw, raw_at, ahead, blocked, tried, since, hold, waits (true while
-- it is in here).
--
-- `settings`: order ("fair": see `tags.lua`; "fifo": as they came; "score": hybrid's score, short outputs first),
-- window and pass_ms (of the passing rule, below), classes = { high = { weight =, floor = }, normal =, low = }.
-- `now` is ms, always passed in. `tide` is a number that is another one after every release of a backend's place; NaN
-- while one is under way: then only the first is tried.
--
-- **Passing.** `try(w, apart, tide)` finds w a place, never the place `apart`, and reserves it; what it returns is
-- returned by `next`, unless it is nil or false. Where `tide` is given, w is not the first: what was found must not be
-- taken if the tide has changed meanwhile, since it may be what a release has freed for the first. The first in the
-- order is tried first. Where no place has room for it, up to `window` behind it are tried, in order, each only after
-- all before it were since the last release: engines are kept fed. When the first has been passed for `pass_ms`,
-- `hold(w, before)` names the place (a number from 0) that it will be able to use soonest (`before`: the one it named
-- already; nil: none can be kept for it), and that place is kept from the others until the first has one.
--
-- **Several gateways** keep the order approximately: see `gateways.lua`.
--
-- **Several workers.** In a gateway each worker has a queue of its own over one `tw_queue` and the `tw_line`s of all
-- (`join`). The order is one: a worker tries its waiter only when all before it were tried, wherever they wait.
local expect = require "tokenweir.core.queue.expect"
local front = require "tokenweir.core.queue.front"
local gateways = require "tokenweir.core.queue.gateways"
local line = require "tokenweir.core.queue.line"
local memory = require "tokenweir.core.queue.memory"
local tags = require "tokenweir.core.queue.tags"
local turn = require "tokenweir.core.queue.turn"
local wait = require "tokenweir.core.queue.wait"

local lowest, served, show, waiting = front.lowest, front.served, front.show, front.waiting
local at, insert, remove = line.at, line.insert, line.remove
local copy = require("ffi").copy
local pairs, sub = pairs, string.sub

local CLASS, LAST_CLASS = memory.CLASS, memory.LAST_CLASS

local MOST_LABEL = 71

--- By score, long outputs stand behind all short ones.
local LONG = 1e13

local DEFAULTS = {
  order = "fair", window = memory.WINDOW - 1, pass_ms = 2000,
  classes = {
    high = { weight = 4, floor = 0.1 }, normal = { weight = 2, floor = 0.1 }, low = { weight = 1, floor = 0.05 },
  },
}

--- A request floods where more than this share of the work before it is of its own flow.
local FLOODS = 0.5
--- For so many times its wait it has to have time then. With less, more of a flood wait in vain, and estimates are
-- worse (`python -m bench.buffer.simulated`).
local FLOODS_LONGER = 1.2

local _M = { DEFAULTS = DEFAULTS, CLASS = CLASS }

local function set_key(q, w, now, alone)
  local order = q.settings.order
  w.tag = nil
  if order == "fifo" then
    w.key = now
  elseif order == "score" then
    w.key = w.long and LONG + now or now
  else
    w.cost = w.work / ((w.weight or 1) * q.weights[CLASS[w.priority]])
    w.tag = tags.give(q.shared, w.flow_id, w.cost, alone)
    w.key = w.tag
  end
end

-- Those who wait get places in another order, as if they came now one after the other.
local function reorder(q)
  for c = 0, LAST_CLASS do
    q.order[c] = line.new()
    for k = 1, q.ages[c].size do
      local w = at(q.ages[c], k)
      set_key(q, w, w.came, false)
      insert(q.order[c], w.key, w, w.work)
    end
  end
end

--- Changes the settings; cheap where they are the same table as before.
function _M.configure(q, settings)
  if settings == q.settings then
    return
  end
  local before = q.settings
  q.settings, q.by_score = settings, settings.order == "score"
  for name, c in pairs(CLASS) do
    local class = settings.classes[name]
    q.weights[c], q.floors[c] = class.weight, class.floor
  end
  if before and before.order ~= settings.order then
    wait.forget(q.shared)
    reorder(q)
    show(q)
  end
end

--- @param settings table or nil: DEFAULTS
function _M.new(settings)
  local q = {
    size = 0, shared = memory.queue(), own = memory.line(), lines = {}, count = 0, stuck = false,
    weights = {}, floors = {}, order = {}, ages = {}, window = {}, cursors = {}, oldest = {},
  }
  for c = 0, LAST_CLASS do
    q.order[c], q.ages[c] = line.new(), line.new()
  end
  _M.configure(q, settings or DEFAULTS)
  return q
end

--- Puts a queue over memory that several workers share.
-- @param shared tw_queue; @param own tw_line; @param lines array 1 .. count of the other workers' tw_line
function _M.join(q, shared, own, lines, count)
  q.shared, q.own, q.lines, q.count = shared, own, lines, count
end

--- @param priority string or nil: all
-- @return number of waiters, of all workers; when the one that waits longest came, 0: nobody waits
function _M.waiting(q, priority)
  return waiting(q, priority and CLASS[priority])
end

local function set_label(into, text)
  copy(into, sub(text, 1, MOST_LABEL))
end

-- Writes what others see of a class.
local function tell(q, c)
  local own, ages = q.own, q.ages[c]
  local oldest, came = at(ages, 1)
  own.count[c], own.oldest[c] = ages.size, oldest and came or 0
  if oldest ~= q.oldest[c] then
    q.oldest[c] = oldest
    set_label(own.label[c], oldest and oldest.label or "")
  end
  expect.update(q, c)
end

--- Puts a waiter into the queue.
-- @param guess function -> work that backends release in a ms, asked where it was not measured lately; or nil
function _M.push(q, w, now, guess)
  local c, sum = CLASS[w.priority], served(q)
  local alone = waiting(q) == 0
  if alone or waiting(q, c) == 0 then
    tags.owe(q.shared, c, q.floors[c], w.work, sum)
  end
  w.flow_id = tags.flow(w.flow)
  set_key(q, w, now, alone)
  if alone then
    wait.begin(q.shared, sum, now, guess)
    if w.tag then
      gateways.align(q.shared, now)
    end
  end
  w.came, w.raw, w.blocked, w.tried, w.since, w.hold, w.waits = now, nil, -1, 0, 0, 0, true
  insert(q.order[c], w.key, w, w.work)
  insert(q.ages[c], now, w, w.work)
  q.size = q.size + 1
  local own = q.own
  own.bytes[c], own.looked = own.bytes[c] + (w.bytes or 0), now
  tell(q, c)
  show(q)
end

local function take_out(q, w)
  local c = CLASS[w.priority]
  remove(q.order[c], w.key, w)
  remove(q.ages[c], w.came, w)
  w.waits = false
  q.size = q.size - 1
  local own = q.own
  own.bytes[c] = own.bytes[c] - (w.bytes or 0)
  tell(q, c)
end

-- When the last one has gone, what was served until then is measured.
local function rest(q, now)
  if q.size == 0 and waiting(q) == 0 then
    wait.sample(q.shared, served(q), now)
  end
end

--- Takes a waiter out that gives up: it left, waited too long, or is dropped. Does nothing for one that is out.
function _M.remove(q, w, now)
  if not w.waits then
    return
  end
  take_out(q, w)
  if w.raw then
    wait.outlast(q.shared, w.raw, now - w.raw_at)
  end
  rest(q, now)
  if w.tag then
    tags.take_back(q.shared, w.flow_id, w.tag, w.cost)
  end
  show(q)
end

local function serve(q, w, now)
  if w.tag then
    tags.serve(q.shared, lowest(q))
  end
  local c, sum = CLASS[w.priority], served(q)
  -- By score a class is owed turns for its oldest, whatever else of it is served.
  local settles = not q.by_score or at(q.ages[c], 1) == w
  take_out(q, w)
  q.own.served, q.shared.gone = q.own.served + w.work, q.shared.gone + 1
  if settles then
    tags.settle(q.shared, c, q.floors[c], w.work, sum)
  end
  if w.raw then
    wait.learn(q.shared, w.raw, now - w.raw_at)
  end
  rest(q, now)
  show(q)
end

--- The next of this worker's waiters that has a place.
-- @param tide number; @param try, hold functions: see above
-- @return w and what `try` returned; or nil: nobody here has a place now. `q.stuck` tells then whether that is for a
--   worker that has not looked for long
function _M.next(q, now, tide, try, hold)
  if q.size == 0 then
    q.own.looked, q.stuck = now, false
    return nil
  end
  local w, found = turn.find(q, now, tide, try, hold)
  if not w then
    return nil
  end
  serve(q, w, now)
  return w, found
end

--- The one of this worker's waiters that came last, or nil.
function _M.last(q)
  local last, latest
  for c = 0, LAST_CLASS do
    local w, came = at(q.ages[c], q.ages[c].size)
    if w and (not last or came > latest) then
      last, latest = w, came
    end
  end
  return last
end

--- Calls `visit(w)` for each of this worker's waiters, class by class as they came; it may take them out.
function _M.each(q, visit)
  for c = 0, LAST_CLASS do
    local ages, all = q.ages[c], {}
    for k = 1, ages.size do
      all[k] = at(ages, k)
    end
    for k = 1, #all do
      visit(all[k])
    end
  end
end

--- Notes what `expect` reckons with: marks for the other workers, the rate of release. A few times a second while
-- somebody waits.
_M.measure = expect.measure

-- Whether most of what stood before a waiter when `expect` was asked is of its own flow. From V to its tag a flow has
-- its own requests one behind the other; times its weight that is their work.
local function floods(q, w)
  return w.tag and (w.tag - w.cost - q.shared.clock) * w.work > FLOODS * w.ahead * w.cost
end

--- What w has to have time for whose whole wait is reckoned as `ms`: who has less would more likely than not wait in
-- vain, and is refused at once. One that floods has to have time for more: what it is refused is given to others of its
-- flow, whose turn comes all the same.
-- @param ms number or nil: the `whole` of `expect`, which was asked just now
-- @return number ms, or nil: nothing was measured
function _M.at_least(q, w, ms)
  if not ms or not wait.is_measured(q.shared) then
    return nil
  end
  return floods(q, w) and FLOODS_LONGER * ms or ms
end

--- What a waiter may expect.
-- @return number position, 1: next; ms that it will probably wait from now on if it is served, nil while no rate is
--   known; for low priority the most that it will wait, where its class is left no more than its floor; ms that it
--   would probably wait if it never gave up
_M.expect = expect.of

return _M
