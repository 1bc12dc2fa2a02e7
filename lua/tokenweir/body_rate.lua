--- Gives up requests whose body comes too slowly. nginx bounds the time between two reads of a body and nothing else
-- (client_body_timeout): a byte each half minute would hold a connection for ever.
--
-- Within `limits.body_ms` a body has to bring its rest, or 1 KiB for each second of that time. On HTTP/1.1 a timer
-- looks at the connections, by the kernel's count of the bytes that came, and shuts those that bring less: nginx then
-- closes them without an answer, as it does after its own time-outs. On HTTP/2 requests share a connection, so each
-- looks after itself in a second coroutine, and answers.
local connection = require("tokenweir.nginx_connection").current
local errors = require "tokenweir.errors"
local metrics = require "tokenweir.metrics"
local sockets = require "tokenweir.sockets"
local state = require "tokenweir.state"
local variable = require("tokenweir.variable").get

local read_body, sleep = ngx.req.read_body, ngx.sleep
local kill, spawn, wait = ngx.thread.kill, ngx.thread.spawn, ngx.thread.wait
local coroutine_status = coroutine.status
local format = string.format
local huge = math.huge
local tonumber = tonumber

local BYTES_A_MS = 1024 / 1000

local _M = {}

-- Requests whose body is being read, at 1 .. count: their contexts (requests[k].body_at == k), the descriptors of their
-- connections, when each was last looked at (0: never), and how many bytes had come by then.
local requests, descriptors, since, before = {}, {}, {}, {}
local count = 0

local function begin(r)
  local c = connection()
  if c then
    count = count + 1
    requests[count], descriptors[count], since[count] = r, c.fd, 0
    r.body_at = count
  end
end

--- The body is there, or will never be; in the log phase, if `r.body_at`.
function _M.forget(r)
  local at = r.body_at
  if at < count then
    local last = requests[count]
    requests[at], descriptors[at], since[at], before[at] = last, descriptors[count], since[count], before[count]
    last.body_at = at
  end
  requests[count], r.body_at = nil, false
  count = count - 1
end
local forget = _M.forget

--- Reads the body of the request that runs, on HTTP/1.
function _M.read(r)
  begin(r)
  read_body()
  if r.body_at then
    forget(r)
  end
end

local function give_up(k)
  requests[k].slow, since[k] = true, huge
  metrics.add("slow_bodies", 1)
  sockets.shut_down(descriptors[k])
end

--- Gives up what comes too slowly; from a timer.
-- @param most_ms `limits.body_ms`
function _M.enforce(now, most_ms)
  for k = count, 1, -1 do
    local seen = since[k]
    if seen == 0 or now - seen >= most_ms then
      local bytes = sockets.received(descriptors[k])
      if seen ~= 0 and bytes and before[k] and bytes - before[k] < most_ms * BYTES_A_MS then
        give_up(k)
      else
        since[k], before[k] = now, bytes
      end
    end
  end
end

-- Coroutines take functions of Lua only.
local function read()
  read_body()
end

local function pause(ms)
  sleep(ms / 1000)
end

local function is_over(thread)
  local at = coroutine_status(thread)
  return at == "zombie" or at == "dead"
end

--- The same on HTTP/2, where only a request itself can end its stream.
function _M.read_stream(r)
  local reader = spawn(read)
  local came = tonumber(variable("request_length"))
  while not is_over(reader) do
    local most_ms = state.settings().limits.body_ms
    local timer = spawn(pause, most_ms)
    wait(reader, timer)
    if is_over(reader) then
      kill(timer)
      return
    end
    local now = tonumber(variable("request_length"))
    if now - came < most_ms * BYTES_A_MS then
      r.slow = true
      metrics.add("slow_bodies", 1)
      return errors.send(408, "request_timeout", format(
        "The body came too slowly: less than 1 KiB a second for %g s (limits.body_time).", most_ms / 1000))
    end
    came = now
  end
end

return _M
