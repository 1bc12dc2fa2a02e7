--- The deadline of a whole request: `r.deadline`, on the monotonic clock, nil where there is none.
--
-- Until an answer begins, nginx's read time-out keeps it. In the middle of an answer that time-out begins anew with
-- each byte, so a stream that falls silent would outlast its deadline by as much as it had left. Therefore a stream
-- with a deadline has an upstream connection of its own, and a timer shuts that down when the time has come: nginx then
-- sees the answer break off, and the body filter ends it. In a worker that drains, timers have stopped, and the read
-- time-out has to do.
local clock = require "tokenweir.clock"
local sockets = require "tokenweir.sockets"

local update_time = ngx.update_time
local format = string.format
local min = math.min
local now_ms = clock.ms

--- nginx's timers run by a clock of whole milliseconds, read once a turn: a time-out may come this much early.
local EARLY_MS = 50

local _M = { EARLY_MS = EARLY_MS }

-- Streams whose answer has begun, at 1 .. count; watched[k].watched_at == k.
local watched, count = {}, 0

--- @param settings table, `known.settings`; @param key table or nil
-- @return ms that a request may take, or nil
function _M.of(settings, key)
  local own, all = key and key.deadline_ms, settings.limits.deadline_ms
  return own and all and min(own, all) or own or all
end

--- How long a request's deadline was, and the setting that says so: "4 s (limits.deadline)".
function _M.describe(r)
  local ms, key = r.deadline - r.arrived, r.key
  local own = key and key.deadline_ms
  return format("%g s (%s)", ms / 1000, own and own <= ms and "keys[].deadline" or "limits.deadline")
end

--- What the client of a request is told that took longer.
function _M.message(r)
  return "The request took longer than its deadline of " .. _M.describe(r) .. "."
end

--- Whether the deadline has come, so that what ended now ended by it.
function _M.reached(r, now)
  local deadline = r.deadline
  return deadline ~= nil and now >= deadline - EARLY_MS
end

--- Whether a request's connection to its backend is to be its own.
function _M.apart(r)
  return r.deadline ~= nil and r.stream
end

--- In the balancer phase, as the last thing: the socket that nginx makes next is this request's.
function _M.expect(r)
  if _M.apart(r) then
    r.socket = sockets.next_descriptor()
  end
end

--- In the header filter of an answer: from now on it is watched.
function _M.watch(r)
  local socket = r.socket
  if not socket then
    return
  end
  local ends, port = sockets.endpoints(socket)
  if port ~= r.target.port then
    -- Something else took that descriptor in between.
    r.socket = nil
    return
  end
  r.ends = ends
  count = count + 1
  watched[count], r.watched_at = r, count
end

--- In the log phase.
function _M.forget(r)
  local at = r.watched_at
  if at then
    local last = watched[count]
    watched[at], last.watched_at = last, at
    watched[count] = nil
    count = count - 1
  end
  r.watched_at, r.socket, r.ends = nil, nil, nil
end

--- Ends the streams whose time is over; from a timer.
function _M.enforce(now)
  for k = count, 1, -1 do
    local r = watched[k]
    if now >= r.deadline then
      if sockets.endpoints(r.socket) == r.ends then
        sockets.shut_down(r.socket)
      end
      _M.forget(r)
    end
  end
end

--- @return ms left, at least one, as a time-out that begins now
function _M.left(r)
  -- nginx counts it from its own clock, which on a busy machine may be older than EARLY_MS.
  update_time()
  local left = r.deadline - now_ms()
  return left > 1 and left or 1
end

return _M
