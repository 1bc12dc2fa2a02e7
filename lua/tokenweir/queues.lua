--- The queues of this worker, one per model: `core/queue` over the shared region, with the backends to serve from.
--
-- Who is served is chosen by whoever looks, in the name of those who wait (`look`): it picks and reserves for them and
-- wakes them. One waiter of a worker, the pilot, looks every few milliseconds, so that a place that is freed in another
-- worker is found; it needs no timer, since timers stop at a reload while the old workers still hold waiters.
local clock = require "tokenweir.clock"
local core = require "tokenweir.core.queue"
local metrics = require "tokenweir.metrics"
local pick = require "tokenweir.pick"
local queue_lines = require "tokenweir.queue_lines"
local queue_metrics = require "tokenweir.queue_metrics"
local scoreboard = require "tokenweir.scoreboard"
local state = require "tokenweir.state"

local pick_for, release_rate, soonest, take = pick.pick, pick.release_rate, pick.soonest, pick.take
local reachable = pick.reachable
local held, tide_of = queue_lines.held, scoreboard.tide
local max = math.max
local now_ms = clock.ms

local MEASURE_MS = 100
local SWEEP_MS = 100
local SEEK_MS = 100
--- Who waits stays for as long as an ejection lasts at first, and so much longer, though no backend can be reached: one
-- of those who wait is what is tried when it is over.
local PATIENCE_MS = 3000
--- A backend is held for as long as its first waiter is tried again and again, and this much longer.
local HELD_MS = 50

local _M = {}

-- By the model's place in the region; and those that were ever used, at 1 .. count.
local by_place, entries, count = {}, {}, 0
local waiting = 0
local swept_at = 0

-- What `try` and `hold` work with, while one look lasts, and `guess`; what `seek_for` has found.
local known_now, now_now, guess_for
local anybody

local function entry_of(place)
  local entry = by_place[place]
  if not entry then
    entry = { q = core.new(), place = place, generation = -1, others = {}, measured_at = 0, sought_at = 0 }
    by_place[place] = entry
    count = count + 1
    entries[count] = entry
  end
  return entry
end

-- Workers come and go, and the settings change with a snapshot.
local function refresh(entry, known)
  local generation = scoreboard.generation()
  if generation ~= entry.generation then
    entry.generation = generation
    local place = entry.place
    core.join(entry.q, queue_lines.queue(place), queue_lines.line(place), entry.others,
      queue_lines.other_lines(place, entry.others))
  end
  core.configure(entry.q, known.queue)
end

local function try(w, apart, tide)
  local r, known = w.request, known_now
  local pool = known.fleet.models[r.model]
  if not pool then
    return nil
  end
  r.pool = pool
  local index, reason = pick_for(known, r, now_now, apart or held(w.place, now_now))
  w.reason = reason
  if not index or (tide and tide_of() ~= tide) then
    return nil
  end
  -- While it is still in the queue: another worker's next one must see the place taken when it is the first.
  return take(known, r, index, now_now)
end

-- The place that the first one will be able to use soonest. Other models' requests may want it too.
local function hold(w, before)
  local place = w.request.pool and w.reason == "full" and soonest(known_now, w.request, now_now, before) or nil
  if place then
    queue_lines.hold(w.place, place, now_now + HELD_MS)
  end
  return place
end

-- Takes the count of a waiter off, which is out of its queue already.
local function uncount(w)
  waiting = waiting - 1
  queue_lines.count(w.place, core.CLASS[w.priority], -1, w.bytes)
end

local function serve(entry, now)
  local q = entry.q
  local tide, released_at = tide_of()
  while true do
    local w = core.next(q, now, tide, try, hold)
    if not w then
      break
    end
    uncount(w)
    w.granted = true
    queue_metrics.served(w, now, tide, released_at)
    w.request.semaphore:post(1)
  end
  if q.stuck and now - swept_at > SWEEP_MS then
    swept_at = now
    metrics.add("workers_swept", scoreboard.sweep())
  end
end

-- Sees whether a waiter has a backend to wait for. Those that any backend may serve share one answer.
local function seek_for(w)
  local r = w.request
  local found
  r.pool = known_now.fleet.models[r.model] or r.pool
  if r.precision or r.pin then
    found = reachable(known_now, r, now_now)
  else
    if anybody == nil then
      anybody = reachable(known_now, r, now_now)
    end
    found = anybody
  end
  if found then
    w.gone_at = nil
    return
  end
  w.gone_at, w.reason = w.gone_at or now_now, "down"
  if _M.waits_in_vain(w, known_now, now_now) then
    r.semaphore:post(1)
  end
end

local function seek(entry, now)
  entry.sought_at, anybody = now, nil
  core.each(entry.q, seek_for)
end

--- Whether none of the backends that may serve a waiter has been there for as long as it stays for them.
function _M.waits_in_vain(w, known, now)
  return w.gone_at ~= nil and now - w.gone_at > known.settings.health.eject_ms + PATIENCE_MS
end

--- Serves whom there is a place for, of this worker's waiters of all models.
function _M.look(now)
  if waiting == 0 then
    return
  end
  local known = state.current(now)
  if not known.fleet then
    return
  end
  known_now, now_now = known, now
  for k = 1, count do
    local entry = entries[k]
    if entry.q.size > 0 then
      refresh(entry, known)
      serve(entry, now)
      if now - entry.measured_at >= MEASURE_MS then
        entry.measured_at = now
        core.measure(entry.q, now)
      end
      if now - entry.sought_at >= SEEK_MS then
        seek(entry, now)
      end
    end
  end
end

local function guess()
  return release_rate(known_now, guess_for, now_now)
end

--- Puts a request into its model's queue.
-- @param w see `core/queue`, with `request`; it gets `place` besides
function _M.enter(w, known, now)
  local r = w.request
  w.place = r.pool.place
  local entry = entry_of(w.place)
  refresh(entry, known)
  known_now, now_now, guess_for = known, now, r
  core.push(entry.q, w, now, guess)
  waiting = waiting + 1
  queue_lines.count(w.place, core.CLASS[w.priority], 1, w.bytes)
end

--- Takes a request out that gives up. Does nothing for one that is out.
function _M.leave(w)
  if w.waits then
    core.remove(by_place[w.place].q, w, now_ms())
    uncount(w)
  end
end

--- @return position, ms, most, whole: see `core/queue`; number of all who wait for its model
function _M.expect(w, now)
  local position, ms, most, whole = core.expect(by_place[w.place].q, w, now)
  w.estimate = w.estimate or ms
  return position, ms, most, whole, max(1, queue_lines.depth(w.place))
end

--- @param ms number or nil, of the whole wait
-- @return ms that it has to have time for, see `core.at_least`; nil: nothing was measured
function _M.at_least(w, ms)
  return core.at_least(by_place[w.place].q, w, ms)
end

--- Some waiter of this worker, or nil.
function _M.any()
  for k = 1, waiting > 0 and count or 0 do
    local w = core.last(entries[k].q)
    if w then
      return w
    end
  end
end

--- Calls `visit(w)` for every waiter of a model in this worker, the one that waits longest first.
function _M.each(place, visit)
  local entry = by_place[place]
  if entry and entry.q.size > 0 then
    core.each(entry.q, visit)
  end
end

--- @return number of this worker's waiters
function _M.waiting()
  return waiting
end

return _M
