-- Times the gateway's own functions inside a worker that runs as in service: CPU time, in microseconds.
local clock = require "tokenweir.clock"
local cjson = require "cjson.safe"
local ffi = require "ffi"
local documents = require "tokenweir.documents"
local ledger = require "tokenweir.ledger"
local pick = require "tokenweir.pick"
local request_context = require "tokenweir.request_context"
local session = require "tokenweir.core.body.session"
local sessions = require "tokenweir.sessions"
local state = require "tokenweir.state"

local floor, max, random = math.floor, math.max, math.random
local now_ms = clock.ms
local C = ffi.C

-- Of the calling thread: what others of the machine do meanwhile does not count.
local CLOCK_THREAD_CPUTIME = 3
local at = ffi.new("tw_timespec")

local MODEL = "llama-3.1-8b"
local TURN = 200        -- picks between two turns of nginx's loop

local _M = {}

local function cpu_us()
  C.clock_gettime(CLOCK_THREAD_CPUTIME, at)
  return tonumber(at.sec) * 1e6 + tonumber(at.nsec) / 1e3
end

local function quantiles(values, count)
  table.sort(values)
  local function at(share)
    return values[max(1, floor(share * count + 0.5))]
  end
  return { p50 = at(0.5), p99 = at(0.99), most = values[count] }
end

local function argument(name)
  return tonumber(ngx.var["arg_" .. name])
end

local function answer(value)
  ngx.header["Content-Type"] = "application/json"
  ngx.say(cjson.encode(value))
end

local function request_of(known, now)
  local r = request_context.take(now)
  r.kind, r.model, r.pool = "chat", MODEL, known.fleet.models[MODEL]
  r.prompt, r.mean, r.median, r.q90, r.sd, r.n = random(50, 2000), random(50, 400), 100, 600, 120, 1
  r.class, r.tokens_per_event = "high", 1
  return r
end

--- Picks and reserves `count` times while `load` requests are in flight; the oldest ends at each.
function _M.picks()
  local count, load = argument("count"), argument("load")
  local line, first = {}, 1
  local times, refused = {}, 0
  for k = 1, count + load do
    local now = now_ms()
    local known = state.current(now)
    local r = request_of(known, now)
    local began = cpu_us()
    local index = pick.pick(known, r, now)
    if index then
      pick.take(known, r, index, now)
    else
      refused = refused + 1
    end
    if k > load then
      times[k - load] = cpu_us() - began
    end
    line[k] = r
    if k > load then
      local oldest = line[first]
      line[first], first = nil, first + 1
      ledger.release(oldest)
      request_context.give(oldest)
    end
    if k % TURN == 0 then
      ngx.sleep(0)
    end
  end
  for k = first, count + load do
    ledger.release(line[k])
    request_context.give(line[k])
  end
  local found = quantiles(times, count)
  found.refused = refused
  answer(found)
end

local function with_session(r, k)
  r.session, r.session_set = session.identify("session-" .. k, r.parsed, false, 0)
end

--- Serves `count` sessions once, then asks for each of them, and for as many that were never served.
function _M.sessions()
  local count = argument("count")
  local settings = state.current(now_ms()).settings
  local r = request_context.take(now_ms())
  for k = 1, count do
    with_session(r, k)
    sessions.served(r, settings, now_ms())
    if k % TURN == 0 then
      sessions.hand_over()
      ngx.sleep(0)
    end
  end
  local times, known, strange = {}, 0, 0
  for k = 1, 2 * count do
    local now, began = now_ms(), cpu_us()
    with_session(r, k)
    local found = sessions.known(r, settings, now)
    times[k] = cpu_us() - began
    if found then
      if k <= count then
        known = known + 1
      else
        strange = strange + 1
      end
    end
    if k % TURN == 0 then
      ngx.sleep(0)
    end
  end
  request_context.give(r)
  local found = quantiles(times, 2 * count)
  found.known, found.strange = known, strange
  found.bytes = ffi.sizeof("tw_known_set") * require("tokenweir.core.sessions.known_sessions").SETS
  answer(found)
end

--- Applies the present snapshot anew, `count` times, as the worker that polls does.
function _M.apply()
  local times = {}
  for k = 1, argument("count") do
    local text, meta = documents.text("snapshot"), documents.meta("snapshot")
    local sequence = meta.number + 1
    text = text:gsub('"sequence":%d+', '"sequence":' .. ("%.0f"):format(sequence), 1)
    local began = cpu_us()
    assert(documents.admit("snapshot", text, "redis", state.trial("snapshot")))
    state.refresh(now_ms(), true)
    times[k] = cpu_us() - began
    assert(state.current(now_ms()).sequence == sequence)
    ngx.sleep(0.02)
  end
  local found = quantiles(times, #times)
  found.backends = state.current(now_ms()).fleet.size
  answer(found)
end

--- What this worker does between two turns of a timer of a millisecond, for `seconds`: so long a request waits for its
-- turn. In CPU time, since others of the machine hold it up too; `late` is the same by the clock.
function _M.stalls()
  local times, late, count = {}, {}, 0
  local ends = now_ms() + 1000 * argument("seconds")
  local last, used = now_ms(), cpu_us()
  local first = state.current(last).sequence
  while last < ends do
    ngx.sleep(0.001)
    local now, cpu = now_ms(), cpu_us()
    count = count + 1
    times[count], late[count] = cpu - used, (now - last) * 1000
    last, used = now, cpu_us()
  end
  local found = quantiles(times, count)
  found.late = quantiles(late, count)
  found.snapshots = state.current(now_ms()).sequence - first
  answer(found)
end

return _M
