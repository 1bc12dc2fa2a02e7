--- The wait in the access phase where nothing has room: in the order of `core/queue`, bounded, and left without a
-- trace.
--
-- Each waiter sleeps on a semaphore until it is served, or its time is over. The first that comes is the pilot: it also
-- looks every few milliseconds in the name of all who wait in this worker (`queues.lua`); when it goes, another is
-- woken to take its place.
local body = require "tokenweir.body"
local breaker = require "tokenweir.breaker"
local clock = require "tokenweir.clock"
local core = require "tokenweir.core.queue"
local deadline = require "tokenweir.deadline"
local demand = require "tokenweir.core.backend.demand"
local early_hints = require "tokenweir.early_hints"
local init_worker = require "tokenweir.init_worker"
local max_wait = require "tokenweir.max_wait"
local queue_lines = require "tokenweir.queue_lines"
local queues = require "tokenweir.queues"
local scoreboard = require "tokenweir.scoreboard"
local second_opinion = require "tokenweir.second_opinion"
local semaphore = require "ngx.semaphore"
local state = require "tokenweir.state"
local turned_away = require "tokenweir.turned_away"

local ngx = ngx
local exiting = ngx.worker.exiting
local variable = require("tokenweir.variable").get
local somebody_elsewhere = queue_lines.somebody_elsewhere
local depth_of, gave_back, held, look = queue_lines.depth, scoreboard.gave_back, queue_lines.held, queues.look
local MAX_SEQUENCES, MAX_TOKENS, tokens = demand.MAX_SEQUENCES, demand.MAX_TOKENS, demand.whole
local now_ms = clock.ms
local max, min = math.max, math.min
local pairs, tonumber = pairs, tonumber

--- How often the pilot looks.
local LOOK_S = 0.002
--- How often one that wants early hints sees whether there is news.
local TELL_S = 0.25

local _M = {}

local pilot

-- What a request shares its part with: its client's others of the same class. What a client has waiting of a lower one
-- does not stand before its high one.
local function flow_of(r)
  local key = r.key
  return r.priority .. (key and " key " .. key.id or " address " .. variable("binary_remote_addr"))
end

-- A new waiter of a request.
local function waiter_of(r)
  local key = r.key
  r.semaphore = r.semaphore or semaphore.new(0)
  return {
    request = r, priority = r.priority, long = r.class == "high",
    work = r.prompt + tokens(r.mean, MAX_TOKENS) * min(r.n, MAX_SEQUENCES),
    flow = flow_of(r), weight = key and key.weight or 1,
    label = key and key.id or "", bytes = tonumber(ngx.var.request_length),
  }
end

-- Hands the pilot's part over when it goes, or when one goes that was woken to take it.
local function step_down(w)
  if pilot and pilot ~= w then
    return
  end
  pilot = nil
  local other = queues.any()
  if other then
    other.request.semaphore:post(1)
  end
end

local function leave(w)
  queues.leave(w)
  w.request.waiter, w.request.wait_ms = false, now_ms() - w.came
  step_down(w)
end

--- Takes a request out that waits; in the log phase, where its client has gone.
function _M.leave(r)
  if r.waiter then
    leave(r.waiter)
  end
end

--- A place of a backend is about to be given back: until `wake`, nobody passes the first one, which has not been tried
-- with that place.
_M.will_wake = scoreboard.gives_back

--- A place of a backend was given back in this worker: whoever waits here looks at once.
function _M.wake(now)
  gave_back(now)
  if pilot and pilot.request.semaphore:count() < 0 then
    pilot.request.semaphore:post(1)
  end
end

-- Wakes those who are to be dropped, whenever a snapshot was applied: they need not wait for their turn to hear it.
local function wake_low(w)
  if w.priority == "low" then
    w.request.semaphore:post(1)
  end
end

state.on_change(function(name, known)
  if queues.waiting() == 0 or name ~= "snapshot" then
    return
  end
  for _, pool in pairs(known.fleet.models) do
    if pool.control.drop_low then
      queues.each(pool.place, wake_low)
    end
  end
end)

--- The place of a backend that is held for another model's first waiter, or nil: who comes now must not take it.
function _M.held(pool, now)
  return held(pool.place, now)
end

--- Whether somebody waits for a model already, here or at another gateway: who comes now must not overtake.
function _M.somebody(pool, now)
  return depth_of(pool.place) ~= 0 or somebody_elsewhere(pool.place, now)
end

-- Whether one more may wait.
local function has_room(w, place, queue)
  local c, class = core.CLASS[w.priority], queue.classes[w.priority]
  local of_class = queue_lines.of_class(place, c)
  return depth_of(place) < queue.max_waiting and of_class < (class.max_waiting or queue.max_waiting)
    and queue_lines.waiting_bytes() + w.bytes <= queue.max_bytes
    and queue_lines.waiting_bytes(c) + w.bytes <= (class.max_bytes or queue.max_bytes)
end

-- Which bound leaves a request too little time for the wait that is to be expected: "deadline", "max_wait", or nil.
local function hopeless(w, r, known, now)
  local _, _, _, whole = queues.expect(w, now)
  local least = queues.at_least(w, whole)
  if not least then
    return nil
  end
  if now + least > w.until_ms then
    return w.until_ms == r.deadline and "deadline" or "max_wait"
  end
  if r.deadline and now + least + turned_away.shortest(known, r) > r.deadline then
    return "deadline"
  end
end

-- Ends a request that is not served.
local function give_up(w, r, reason, now)
  local told = turned_away.expectation(w, now)
  leave(w)
  return turned_away.send(r, reason, told)
end

local function sleep(w, until_ms, now)
  local seconds = max(0.001, (until_ms - now) / 1000)
  if pilot == w then
    seconds = min(LOOK_S, seconds)
  elseif w.told then
    seconds = min(TELL_S, seconds)
  end
  w.request.semaphore:wait(seconds)
end

-- Tells one that asked for it where it stands. Its client can be served no more if that fails in the middle.
local function tell(w, queue, now)
  if now - w.looked_at < TELL_S * 1000 then
    return
  end
  w.looked_at = now
  if not early_hints.update(w, now, queue.early_hints) then
    leave(w)
    return ngx.exit(444)
  end
end

--- Waits for a backend with room, which is reserved for it. A request that waits too long ends here.
-- @param reason why it must wait: "full", or what `pick` said
-- @return table `known`, as it is now
function _M.wait(r, known, now, reason)
  local queue = known.queue
  local until_ms = now + max_wait.of(r, queue)
  if r.deadline then
    until_ms = min(until_ms, r.deadline)
  end
  local w = waiter_of(r)
  w.until_ms, w.reason, w.told, w.looked_at = until_ms, reason, early_hints.wanted(queue.early_hints), 0
  local fits = has_room(w, r.pool.place, queue)
  queues.enter(w, known, now)
  r.waiter = w
  if not fits then
    return give_up(w, r, "queue_full", now)
  end
  look(now)
  if not w.granted then
    second_opinion.ask(r, known.settings)
  end
  if not w.granted then
    local bound = hopeless(w, r, known, now)
    if bound then
      return give_up(w, r, bound, now)
    end
    body.put_aside(r)
  end
  while not w.granted do
    if now >= until_ms then
      return give_up(w, r, deadline.reached(r, now) and "deadline_exceeded" or "max_wait", now)
    end
    pilot = pilot or w
    if w.told then
      tell(w, queue, now)
    end
    sleep(w, until_ms, now)
    now = now_ms()
    if not w.granted and pilot == w then
      if exiting() then
        init_worker.housekeep(now)
      end
      look(now)
    end
    if not w.granted and w.priority == "low" and breaker.drops(r, state.current(now)) then
      leave(w)
      return breaker.drop(r)
    elseif not w.granted and queues.waits_in_vain(w, state.current(now), now) then
      return give_up(w, r, "no_capacity", now)
    end
  end
  r.waiter = false
  step_down(w)
  body.take_up(r)
  return state.current(now)
end

return _M
