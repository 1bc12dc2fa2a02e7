--- The wait in the access phase where nothing has room: first come, first served, one line per model over all workers.
--
-- Each worker keeps its own waiters in order and shows the others its first (`region.set_head`). The first of a worker
-- wakes by a semaphore when something was released in this worker, and looks every few milliseconds for what was
-- released elsewhere; the others sleep until they are first. No timer is needed: timers stop at a reload, while
-- the old workers still hold waiters.
local breaker = require "tokenweir.breaker"
local clock = require "tokenweir.clock"
local deadline = require "tokenweir.deadline"
local errors = require "tokenweir.errors"
local init_worker = require "tokenweir.init_worker"
local pick = require "tokenweir.pick"
local queue_order = require "tokenweir.core.queue_order"
local region = require "tokenweir.region"
local semaphore = require "ngx.semaphore"
local state = require "tokenweir.state"

local ngx = ngx
local exiting = ngx.worker.exiting
local now_ms = clock.ms
local max, min = math.max, math.min
local pairs, tonumber = pairs, tonumber

--- How often a worker's first waiter looks.
local LOOK_S = 0.005
local LONGEST_SLEEP_S = 60

local _M = {}

-- By the model's place in the region: the line, and the waiting records by ticket.
local lines = {}
local waiting = 0

local function line_of(place)
  local entry = lines[place]
  if not entry then
    entry = { line = queue_order.new(), records = {}, classes = {} }
    for class in pairs(region.CLASS) do
      entry.classes[class] = queue_order.new()
    end
    lines[place] = entry
  end
  return entry
end

local function first_of(entry)
  local ticket = queue_order.head(entry.line)
  return ticket ~= 0 and entry.records[ticket] or nil
end

local function publish(place, entry)
  local first = first_of(entry)
  region.set_head(place, first and first.ticket or 0, entry.line.size, first and first.arrived or 0)
end

-- The breaker looks at the longest wait of each class.
local function publish_class(place, entry, class)
  local ticket = queue_order.head(entry.classes[class])
  local first = ticket ~= 0 and entry.records[ticket]
  region.set_oldest(place, class, first and first.arrived or 0)
end

local function enter(r, now)
  local place = r.pool.place
  local entry = line_of(place)
  r.ticket, r.line_place = region.ticket(now), place
  r.semaphore = r.semaphore or semaphore.new(0)
  queue_order.push(entry.line, r.ticket)
  queue_order.push(entry.classes[r.priority], r.ticket)
  entry.records[r.ticket] = r
  waiting = waiting + 1
  local own = region.own()
  own.waiting_bytes = own.waiting_bytes + r.waiting_bytes
  publish(place, entry)
  publish_class(place, entry, r.priority)
end

--- Takes a request out of the line; when it is served, has waited too long, or its client has gone.
function _M.leave(r)
  local ticket = r.ticket
  if not ticket then
    return
  end
  local place = r.line_place
  local entry = lines[place]
  local was_first = queue_order.head(entry.line) == ticket
  queue_order.remove(entry.line, ticket)
  queue_order.remove(entry.classes[r.priority], ticket)
  entry.records[ticket] = nil
  r.ticket = nil
  waiting = waiting - 1
  local own = region.own()
  own.waiting_bytes = own.waiting_bytes - r.waiting_bytes
  publish(place, entry)
  publish_class(place, entry, r.priority)
  local first = was_first and first_of(entry)
  if first then
    first.semaphore:post(1)
  end
end

--- Something was released in this worker: its first waiters look at once.
function _M.wake()
  if waiting == 0 then
    return
  end
  for _, entry in pairs(lines) do
    local first = first_of(entry)
    if first and first.semaphore:count() < 0 then
      first.semaphore:post(1)
    end
  end
end

-- Wakes those who are to be dropped, whenever a snapshot was applied: they need not wait for their turn to hear it.
state.on_change(function(name, known)
  if waiting == 0 or name ~= "snapshot" then
    return
  end
  for _, pool in pairs(known.fleet.models) do
    local entry = pool.control.drop_low and lines[pool.place]
    if entry then
      for _, r in pairs(entry.records) do
        if r.priority == "low" then
          r.semaphore:post(1)
        end
      end
    end
  end
end)

--- Whether somebody waits for a model already: who comes now must not overtake.
function _M.somebody(pool)
  local first = region.heads(pool.place)
  return first ~= 0
end

local function refuse(r, reason)
  if deadline.reached(r, now_ms()) then
    return errors.send(504, "deadline_exceeded", "The request waited for a backend until its deadline.")
  end
  local _, _, since = region.heads(r.pool.place)
  local seconds = since > 0 and (now_ms() - since) / 1000 or 1
  if reason == "full" then
    return errors.send(429, "overloaded",
      "Every backend that could serve this request is full, and the wait for one is over its limit. Try again later.",
      nil, max(1, seconds))
  end
  return errors.send(503, "no_capacity", "No backend of model '" .. errors.echo(r.model) .. "' can be reached now.",
    nil, max(1, seconds))
end

--- Waits for a backend with room and reserves it. A request that waits too long ends here.
-- @param reason why it must wait: "full", or what `pick` said
-- @return table `known`, as it is now
function _M.wait(r, known, now, reason)
  local queue = known.queue
  local _, depth = region.heads(r.pool.place)
  r.waiting_bytes = tonumber(ngx.var.request_length)
  if depth >= queue.max_waiting or region.waiting_bytes() + r.waiting_bytes > queue.max_bytes then
    return refuse(r, "full")
  end
  local until_ms = r.arrived + queue.max_wait_ms
  if r.deadline then
    until_ms = min(until_ms, r.deadline)
  end
  enter(r, now)
  local entry = lines[r.line_place]
  while now < until_ms do
    local is_first = queue_order.head(entry.line) == r.ticket
    local sleep = (until_ms - now) / 1000
    r.semaphore:wait(max(0.001, min(is_first and LOOK_S or LONGEST_SLEEP_S, sleep)))
    now = now_ms()
    if exiting() then
      init_worker.housekeep(now)
    end
    if r.priority == "low" and breaker.drops(r, state.current(now)) then
      _M.leave(r)
      return breaker.drop(r)
    end
    if queue_order.head(entry.line) == r.ticket and region.heads(r.line_place) == r.ticket then
      known = state.current(now)
      local pool = known.fleet.models[r.model]
      if pool then
        r.pool = pool
        local index
        index, reason = pick.pick(known, r, now)
        if index then
          pick.take(known, r, index, now)
          _M.leave(r)
          return known
        end
      end
    end
  end
  _M.leave(r)
  return refuse(r, reason)
end

return _M
