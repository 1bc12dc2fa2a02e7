--- The balancer phase: names the peer that the access phase reserved, and moves a request that was not executed.
--
-- A request is sent again only if nothing of it had been sent, or if the backend refused it with 429 or 503; never to
-- one that had it before; only to a backend that takes the very same bytes (`targets.lua`).
local balancer = require "ngx.balancer"
local clock = require "tokenweir.clock"
local config = require "tokenweir.config"
local deadline = require "tokenweir.deadline"
local health = require "tokenweir.core.backend.health"
local ledger = require "tokenweir.ledger"
local metrics = require "tokenweir.metrics"
local passive_health = require "tokenweir.passive_health"
local pick = require "tokenweir.pick"
local quarantine = require "tokenweir.quarantine"
local state = require "tokenweir.state"
local upstream_log = require "tokenweir.upstream_log"
local waiting = require "tokenweir.waiting"

local ngx = ngx
local current = require("tokenweir.current_context").get
local get_last_failure, set_current_peer = balancer.get_last_failure, balancer.set_current_peer
local set_more_tries, set_timeouts = balancer.set_more_tries, balancer.set_timeouts
local min = math.min
local now_ms = clock.ms
local settings = state.settings

--- What nginx takes for "no live upstream": a clean 502.
local BUSY = -3

local _M = {}

local function connect(r)
  local target = r.target
  r.tries = r.tries + 1
  local ok, err = set_current_peer(target.host, target.port)
  if not ok then
    ngx.log(ngx.ERR, "tokenweir: backend ", target.id, " has no usable address: ", err)
    return ngx.exit(BUSY)
  end
  local idle = settings().limits.idle_ms
  if r.deadline then
    set_timeouts(nil, nil, min(idle, deadline.left(r)) / 1000)
    deadline.expect(r)
  elseif idle ~= config.current.idle_ms then
    set_timeouts(nil, nil, idle / 1000)
  end
end

local function first(r)
  local others = r.alternates
  if others > 0 then
    local tries = settings().limits.tries
    if tries > 1 then
      set_more_tries(min(tries - 1, others))
    end
  end
  return connect(r)
end

-- Takes note of a backend that did not take the request. Returns why it may go elsewhere, or nil.
local function why_again(r, now)
  local _, status = get_last_failure()
  if status == 429 or status == 503 then
    r.refused = status
    if health.counts(status) then
      passive_health.failure(r.place, "status", now)
    elseif r.probe then
      passive_health.abandon(r.place, now)
    end
    return status == 429 and "429" or "503"
  end
  r.refused = false
  if upstream_log.sent() > 0 then
    r.cut = status == 504 and 504 or 502
    return nil
  end
  passive_health.failure(r.place, "connect", now)
  quarantine.crashed(r.backend, state.current(now).settings.limits.quarantine_ms)
  return "connect"
end

local function again(r)
  local now = now_ms()
  local why = why_again(r, now)
  if not why then
    return ngx.exit(BUSY)
  end
  r.noted = true
  if deadline.reached(r, now) then
    return ngx.exit(BUSY)
  end
  local known = state.current(now)
  local pool = known.fleet.models[r.model]
  if not pool or r.tries >= known.settings.limits.tries then
    return ngx.exit(BUSY)
  end
  waiting.will_wake()
  ledger.release(r)
  waiting.wake(now)
  r.tried = r.tried or {}
  r.tried_count = r.tried_count + 1
  r.tried[r.tried_count] = r.place
  r.pool = pool
  if not pick.pick_and_take(known, r, now) then
    return ngx.exit(BUSY)
  end
  metrics.add("retries", 1, why)
  r.noted, r.refused = false, false
  return connect(r)
end

--- Handles one attempt.
function _M.run()
  local r = current()
  if r.tries == 0 then
    return first(r)
  end
  return again(r)
end

return _M
