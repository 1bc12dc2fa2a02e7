--- The deadline of a whole request: `r.deadline`, on the monotonic clock, false where there is none.
--
-- Until an answer begins, nginx's read time-out keeps it. In the middle of an answer that time-out begins anew with
-- each byte, so a stream that falls silent would outlast its deadline by as much as it had left. Therefore a stream
-- with a deadline has an upstream connection of its own, and a timer shuts that down when the time has come: nginx then
-- sees the answer break off, and the body filter ends it. In a worker that drains, timers have stopped, and the read
-- time-out has to do.
--
-- A client that hardly reads would keep any answer from its end. On HTTP/1 its connection is shut, too, if the answer
-- is still not over a while after the deadline.
local clock = require "tokenweir.clock"
local connection = require("tokenweir.nginx_connection").current
local sockets = require "tokenweir.sockets"

local http_version, update_time = ngx.req.http_version, ngx.update_time
local format = string.format
local min = math.min
local now_ms = clock.ms

--- nginx's timers run by a clock of whole milliseconds, read once a turn: a time-out may come this much early.
local EARLY_MS = 50
--- How long after its deadline an answer may still be on its way to its client.
local UNREAD_MS = 2000

local _M = { EARLY_MS = EARLY_MS }

-- Requests with a deadline whose answer has begun, at 1 .. count; watched[k].watch.at == k. A `watch` has besides the
-- descriptors of the request's connections, `socket` and `client`, and what is at the former's `ends`.
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
  return deadline and now >= deadline - EARLY_MS
end

--- Whether a request's connection to its backend is to be its own.
local function is_apart(r)
  return r.deadline and r.stream
end
_M.apart = is_apart

--- In the balancer phase, as the last thing: the socket that nginx makes next is this request's.
function _M.expect(r)
  if is_apart(r) then
    r.watch = { socket = sockets.next_descriptor() }
  end
end

-- Makes sure that the socket is the one to the request's backend: something else may have taken its descriptor.
local function know_socket(watch, target)
  local ends, port = sockets.endpoints(watch.socket)
  if port == target.port then
    watch.ends = ends
  else
    watch.socket = nil
  end
end

--- In the header filter of an answer: from now on it is watched.
function _M.watch(r)
  local watch = r.watch or {}
  r.watch = watch
  if watch.socket then
    know_socket(watch, r.target)
  end
  local c = http_version() < 2 and connection()
  watch.client = c and c.fd or nil
  count = count + 1
  watched[count], watch.at = r, count
end

--- In the log phase.
function _M.forget(r)
  local at = r.watch and r.watch.at
  if at then
    local last = watched[count]
    watched[at], last.watch.at = last, at
    watched[count] = nil
    count = count - 1
  end
  r.watch = false
end

local function end_answer(watch)
  if sockets.endpoints(watch.socket) == watch.ends then
    sockets.shut_down(watch.socket)
  end
  watch.socket = nil
end

--- Ends the answers whose time is over; from a timer.
function _M.enforce(now)
  for k = count, 1, -1 do
    local r = watched[k]
    local watch = r.watch
    if now >= r.deadline and watch.socket then
      end_answer(watch)
    elseif now >= r.deadline + UNREAD_MS then
      if watch.client then
        r.late = true
        sockets.shut_down(watch.client)
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
