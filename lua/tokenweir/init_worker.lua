--- What a worker does when it starts and when it exits, and its timers.
local affinity = require "tokenweir.affinity"
local body = require "tokenweir.body"
local body_rate = require "tokenweir.body_rate"
local clock = require "tokenweir.clock"
local config = require "tokenweir.config"
local credentials = require "tokenweir.credentials"
local deadline = require "tokenweir.deadline"
local events = require "tokenweir.events"
local ledger = require "tokenweir.ledger"
local lingering = require "tokenweir.lingering"
local liveness = require "tokenweir.liveness"
local metrics = require "tokenweir.metrics"
local moves = require "tokenweir.moves"
local passive_health = require "tokenweir.passive_health"
local poller = require "tokenweir.poller"
local poller_lock = require "tokenweir.poller_lock"
local posix = require "tokenweir.posix"
local prepare = require "tokenweir.prepare"
local region = require "tokenweir.region"
local scoreboard = require "tokenweir.scoreboard"
local sessions = require "tokenweir.sessions"
local state = require "tokenweir.state"
local targets = require "tokenweir.targets"

local now_ms = clock.ms
local every, exiting, sleep = ngx.timer.every, ngx.worker.exiting, ngx.sleep
local max = math.max
local ipairs, pcall = ipairs, pcall

local SWEEP_MS, WATCH_MS, ADVANCE_MS, FLUSH_MS, KEYS_MS, BODIES_MS = 250, 250, 250, 1000, 500, 250
--- How often it is seen whether timers still run, and when they are taken not to.
local LOOK_S, SILENT_MS = 0.25, 500
--- Half of the 200 ms within which a gateway knows of a move is for slow machines.
local MOVES_S = 0.04
--- Memory of some large bodies at once.
local FREED_KEPT = 16 * 1024 * 1024
--- No request needs the file of its body for longer: it is read for the last time when its wait is over, and what nginx
-- has open stays.
local BODY_LIFE_S = 2 * 3600

local _M = {}

local due = { sweep = 0, watch = 0, advance = 0, flush = 0, keys = 0, bodies = 0 }
local turned_at = 0             -- when a timer last had its turn

local function is_due(what, now, interval)
  if now < due[what] then
    return false
  end
  due[what] = now + interval
  return true
end

--- What needs no network: end late streams and slow bodies, apply documents, clear dead workers' rows, move requests
-- on, look for hangs, add up counters.
-- Waiting requests of a worker that drains call it too, since its timers have stopped.
-- @param pause function or nil, see `state.refresh`
function _M.housekeep(now, pause)
  deadline.enforce(now)
  state.refresh(now, false, pause)
  local known = state.current(now)
  affinity.build(known)
  if is_due("sweep", now, SWEEP_MS) then
    local dead = scoreboard.sweep()
    if dead > 0 then
      metrics.add("workers_swept", dead)
    end
  end
  if is_due("advance", now, ADVANCE_MS) then
    ledger.advance(known, now)
    lingering.settle(known, now)
  end
  if known.settings and is_due("bodies", now, BODIES_MS) then
    body_rate.enforce(now, known.settings.limits.body_ms)
  end
  if is_due("flush", now, FLUSH_MS) then
    metrics.flush()
  end
  if is_due("keys", now, KEYS_MS) and credentials.refresh() and known.fleet then
    targets.authorize(known.fleet)
  end
  return known
end

local function poll(premature)
  turned_at = now_ms()
  if premature then
    return poller.yield()
  end
  if not poller.tick(now_ms()) then
    return
  end
  local now = now_ms()
  if is_due("watch", now, WATCH_MS) then
    passive_health.watch(state.current(now), now)
    liveness.watch(state.current(now), now)
    affinity.watch(state.current(now), now)
  end
end

-- Lets requests have their turn.
local function pause()
  sleep(0.001)
end

local function read_moves(premature)
  if not premature and poller_lock.is_held() then
    local now = now_ms()
    moves.look(state.current(now), now)
  end
end

local function keep_house(premature)
  if premature then
    return lingering.hand_over()
  end
  _M.housekeep(now_ms(), pause)
end

local function send_events(premature)
  sessions.hand_over()
  events.flush(now_ms(), premature)
end

-- nginx gives each turn of a timer a connection; a worker whose clients have taken all of them has none for that, and
-- would give up its lease. This one has had its own from the beginning, and stands in meanwhile. What it needs of Redis
-- is a connection that the turns before have left open.
local function stand_in(premature, turns)
  while not premature and not exiting() do
    sleep(LOOK_S)
    if now_ms() - turned_at > SILENT_MS then
      for _, turn in ipairs(turns) do
        local ok, err = pcall(turn, false)
        if not ok then
          ngx.log(ngx.ERR, "tokenweir: a turn that stood in for a timer failed to run: ", err)
        end
      end
    end
  end
end

--- In init_worker_by_lua.
function _M.start()
  local now = now_ms()
  posix.keep_freed(FREED_KEPT)
  -- Workers are forked from one master, and would draw the same numbers.
  math.randomseed(ngx.worker.pid() * 65536 + now % 65536)
  local entry, err = scoreboard.claim(ngx.worker.pid())
  if not entry then
    ngx.log(ngx.ERR, "tokenweir: this worker's load is not seen by the others: ", err)
  end
  if config.current.body_dir then
    body.sweep(config.current.body_dir, max(region.born(), ngx.time() - BODY_LIFE_S))
  end
  prepare.follow()
  state.refresh(now, true)
  local interval = config.current.poll_ms / 1000
  ngx.timer.at(0, poll)
  for _, turn in ipairs { { interval, poll }, { 0.1, keep_house }, { 0.1, send_events }, { MOVES_S, read_moves } } do
    local ok, problem = every(turn[1], turn[2])
    if not ok then
      ngx.log(ngx.EMERG, "tokenweir: a timer could not be started: ", problem)
    end
  end
  ngx.timer.at(0, stand_in, { poll, keep_house, send_events, read_moves })
end

--- In exit_worker_by_lua.
function _M.stop()
  poller.yield()
  lingering.hand_over()
  events.hand_over()
  metrics.flush()
  scoreboard.release()
end

return _M
