--- Health of the backends from what requests meet: `core/backend/health.lua` over the structs that all workers share.
-- `place` is a backend's place in the region: `fleet.place[i]`, or `r.place` of a reserved request.
local clock = require "tokenweir.clock"
local health = require "tokenweir.core.backend.health"
local load = require "tokenweir.core.backend.load"
local ledger = require "tokenweir.ledger"
local metrics = require "tokenweir.metrics"
local numbering = require "tokenweir.numbering"
local region = require "tokenweir.region"
local state = require "tokenweir.state"
local targets = require "tokenweir.targets"

local current = state.current
local note_byte, note_success, take_probe = health.byte, health.success, health.probe
local health_rows = region.health
local now_ms = clock.ms
local CAUSES = health.CAUSES
local EJECTED, HALF_OPEN, PROBING = health.EJECTED, health.HALF_OPEN, health.PROBING

local WHY = {}
for name, number in pairs(CAUSES) do
  WHY[number] = name
end

local _M = {}

local row = load.new(0)

local function settings()
  local known = current(now_ms())
  return known.settings and known.settings.health or health.DEFAULTS
end

--- A request was answered.
-- @return boolean whether the backend came back by it
function _M.success(place, now)
  return note_success(health_rows()[place], now)
end

--- A request was refused by the backend itself (`core/backend/health.refuses` tells which statuses do that).
function _M.refusal(place, now)
  health.refusal(health_rows()[place], now)
end

--- A request failed by the backend's fault (`core/backend/health.counts` tells which statuses are).
-- @param why `connect`, `status`, `broke` or `hang`
-- @return boolean whether the backend was ejected by it
function _M.failure(place, why, now)
  local ejected = health.failure(health_rows()[place], now, CAUSES[why], settings())
  if ejected then
    metrics.ejection(numbering.backend_at(place) or "", why)
  end
  return ejected
end

--- The backend's engine says that it is out of memory.
function _M.exhausted(place, now)
  if health.exhausted(health_rows()[place], now, settings()) then
    metrics.ejection(numbering.backend_at(place) or "", "memory")
  end
end

--- Bytes of an answer came.
-- @param since ms since the stream's bytes before; nil for the first
function _M.byte(place, now, since)
  return note_byte(health_rows()[place], now, since)
end

--- To be called when a request is sent: takes the lease of the probe where the backend is half-open.
-- @return boolean whether this request is the probe
function _M.probe(place, now)
  return take_probe(health_rows()[place], now, settings())
end

--- To be called before that for a backend that an old snapshot says is out, or of which nothing is known but that it
-- did not answer the sidecar in time.
-- @param since ms, from when on a sign of life disproves that
function _M.doubt(place, since, now)
  health.doubt(health_rows()[place], since, now)
end

--- A probe ended and told nothing: the next may go.
function _M.abandon(place, now)
  health.abandon(health_rows()[place], now)
end

--- Backends that are out. One that may be probed is not: the sidecar must count on it again, or a model's requests
-- would all stay with its fallback, and none of them would be the probe.
-- @return table id -> why
function _M.ejected(known, now)
  local list, rows = {}, health_rows()
  local fleet = known.fleet
  for i = 1, fleet and fleet.size or 0 do
    local h = rows[fleet.place[i]]
    if fleet.state[i] == targets.NO_KEY then
      list[fleet.id[i]] = "its API key is not known to this gateway"
    elseif health.state(h, now) == EJECTED then
      list[fleet.id[i]] = WHY[h.cause] or "failures"
    end
  end
  return list
end

--- Backends that were out and that one request at a time tries again, until one is answered.
-- @return table id -> why they had been out
function _M.tried(known, now)
  local list, rows = {}, health_rows()
  local fleet = known.fleet
  for i = 1, fleet and fleet.size or 0 do
    local h = rows[fleet.place[i]]
    local at = health.state(h, now)
    if fleet.state[i] ~= targets.NO_KEY and (at == HALF_OPEN or at == PROBING) then
      list[fleet.id[i]] = WHY[h.cause] or "failures"
    end
  end
  return list
end

--- Ejects what hangs; from the timer of one worker.
function _M.watch(known, now)
  local fleet, rows = known.fleet, health_rows()
  local how = known.settings and known.settings.health or health.DEFAULTS
  for i = 1, fleet and fleet.size or 0 do
    local place = fleet.place[i]
    if ledger.count(place) > 0 then
      local sum = ledger.sum(row[0], place)
      local progress_age, scrape_failures = -1, 0
      if not known.stale then
        progress_age = fleet.progress_age_ms[i]
        if progress_age >= 0 then
          progress_age = progress_age + known.snapshot_age_ms
        end
        scrape_failures = fleet.scrape_failures[i]
      end
      local h = rows[place]
      if health.stalled(h, sum.flowing, now, progress_age, scrape_failures, sum.prefill * fleet.prefill[i], how)
        and health.hang(h, now, how) then
        metrics.ejection(fleet.id[i], "hang")
        ngx.log(ngx.WARN, "tokenweir: backend ", fleet.id[i], " stands still though it has work; it is ejected")
      end
    end
  end
end

return _M
