--- Picks a backend for a request: what is usable, what is in flight, what the policy says. One pick runs at a time in a
-- worker and none yields, so the tables here are reused.
local affinity = require "tokenweir.affinity"
local contract = require "tokenweir.contract"
local demand = require "tokenweir.core.backend.demand"
local eligible = require "tokenweir.core.backend.eligible"
local fixed_table = require "tokenweir.core.fixed_table"
local fresh = require "tokenweir.core.fresh"
local ledger = require "tokenweir.ledger"
local metrics = require "tokenweir.metrics"
local passive_health = require "tokenweir.passive_health"
local policy = require "tokenweir.core.policy"
local region = require "tokenweir.region"
local room = require "tokenweir.core.backend.room"
local state = require "tokenweir.state"
local targets = require "tokenweir.targets"
local transfer = require "tokenweir.transfer"

local health_rows = region.health
local locate, note_served, reckon = affinity.locate, affinity.served, affinity.reckon
local take_probe = passive_health.probe
local claim, view_of = ledger.claim, ledger.view
local control_of = state.control
local filter = eligible.filter
local release_rate, soonest = room.release_rate, room.soonest
local measure = demand.measure
local interchangeable = targets.interchangeable
local among, get_policy, policy_pick, serving = policy.among, policy.get, policy.pick, policy.serving
local can_ask = transfer.can_ask
local join = fresh.load "tokenweir.core.trace_join"
local max, random = math.max, math.random
local pairs = pairs

--- A backend that answered a request this recently is alive, though the sidecar waits for it in vain: as long as the
-- sidecar's own rule of the same kind.
local ALIVE_MS = 3000

--- So often a place may be taken by another worker between the choice and the reservation.
local TRIES = 3

local candidates = require("table.new")(contract.numbers.max_backends, 0)
local usual = {}
local query = fixed_table.new {
  "now", "health", "stale", "random", "settings", "by_turn", "prompt", "tried", "tried_count", "apart", "role",
  "precision", "draw", "stay", "pin", "credential_group", "upstream",
}
query.random, query.tried, query.tried_count = random, {}, 0

local _M = {}

-- Drops what a retry cannot reach with the request as it was made.
local function keep_interchangeable(fleet, r, count)
  local kept = 0
  for k = 1, count do
    if interchangeable(fleet.target[candidates[k]], r.target) then
      kept = kept + 1
      candidates[kept] = candidates[k]
    end
  end
  return kept
end

-- Sets what does not depend on the request; returns the policy that decides.
local function prepare_query(known, now)
  local served = serving(get_policy(known.policy), known.stale)
  query.now, query.stale, query.health = now, known.stale, health_rows()
  query.settings = known.thresholds
  query.by_turn = served.by_turn
  return served
end

local function prepare_request(r)
  query.prompt = r.prompt
  query.tried, query.tried_count = r.tried, r.tried_count
  r.draw = r.draw or random()
  query.draw, query.stay, query.pin = r.draw, r.stay or false, r.pinned or false
  if r.tried_count > 0 then
    query.credential_group, query.upstream = r.target.group, r.upstream
  else
    query.credential_group, query.upstream = false, false
  end
end

-- The article's trigger of its buffer: the memory of every backend is nearly full, as telemetry shows it.
local function crowded(known, count)
  local memory, most = known.fleet.memory, known.queue.trigger_memory
  for k = 1, count do
    if memory[candidates[k]] <= most then
      return false
    end
  end
  return not known.stale
end

-- One attempt among the backends of a role (false: of the first that has any), and of a variant where one is wanted.
local function attempt(known, r, now, served, role, precision)
  local fleet = known.fleet
  query.role, query.precision = role, precision or false
  local count, word, retry_at, spare = filter(fleet, r.pool, query, candidates)
  if count > 0 and r.tried_count > 0 then
    count, spare = keep_interchangeable(fleet, r, count), nil
    word = "tried"
  end
  if count == 0 then
    return nil, word, retry_at
  elseif known.queue.trigger == "memory" and crowded(known, count) then
    return nil, "full"
  end
  local all = count + (spare or 0)
  local view = view_of(known, candidates, all, now)
  reckon(view, r, candidates, all)
  local how = known.settings.sessions.transfer
  view.transfer = how.adapter ~= "none" and r.home and can_ask(r) and how or nil
  local index, reason = among(served, view, r, candidates, count, spare)
  join()
  r.policy = served.name
  if known.shadow and not r.shadow then
    _M.shadow(known, view, r, count, index)
  end
  return index, reason
end

--- @param known `state.current()`
-- @param r see `request_context.lua`; a request that was sent before (`r.tried_count > 0`) is only offered what can
--   take it unchanged
-- @param apart place of a backend that is held for another request, or nil
-- @return index in the fleet; or nil and "full" (wait), "ejected" (and when one may be probed, ms), "tried" or "down"
local function pick(known, r, now, apart)
  local served = prepare_query(known, now)
  locate(known, r, now)
  prepare_request(r)
  query.apart = apart or false
  local pool, control = r.pool, control_of(known, r.pool)
  local index, reason, retry_at, full
  if control.fallback and pool.fallbacks > 0 then
    index, reason = attempt(known, r, now, served, "fallback", false)
    if index then
      return index
    end
    full = reason == "full"
  elseif control.precision ~= "" and not r.precision then
    index = attempt(known, r, now, served, "active", control.precision)
    if index then
      return index
    end
  end
  index, reason, retry_at = attempt(known, r, now, served, false, r.precision)
  if not index and full then
    return nil, "full"
  end
  return index, reason, retry_at
end
_M.pick = pick

--- The place of the backend that will have room for a request soonest.
-- @param before the place that was named for it the last time, or nil
-- @return number, or nil
function _M.soonest(known, r, now, before)
  prepare_query(known, now)
  prepare_request(r)
  query.apart, query.role, query.precision = false, false, r.precision or false
  local fleet = known.fleet
  local count = filter(fleet, r.pool, query, candidates)
  if count == 0 then
    return nil
  end
  local kept
  for k = 1, before and count or 0 do
    if fleet.place[candidates[k]] == before then
      kept = candidates[k]
    end
  end
  local index = soonest(view_of(known, candidates, count, now), candidates, count, r, kept)
  return index and fleet.place[index]
end

--- Whether some backend could take a request, were there room for it.
function _M.reachable(known, r, now)
  prepare_query(known, now)
  locate(known, r, now)
  prepare_request(r)
  query.apart, query.role, query.precision = false, false, r.precision or false
  return filter(known.fleet, r.pool, query, candidates) > 0
end

--- Tokens that the backends of a request's model release in a ms, as far as the fleet's figures tell.
function _M.release_rate(known, r, now)
  local fleet, pool = known.fleet, r.pool
  local count = 0
  for k = 1, pool.size do
    if fleet.state[pool[k]] == "ready" then
      count = count + 1
      candidates[count] = pool[k]
    end
  end
  local view = view_of(known, candidates, count, now)
  measure(r, usual)
  local sum = 0
  for k = 1, count do
    sum = sum + release_rate(view.load, fleet, candidates[k], usual)
  end
  return sum
end

--- Whether any request could be sent anywhere.
function _M.possible(known, now)
  prepare_query(known, now)
  query.prompt, query.tried_count, query.credential_group, query.upstream, query.apart = 0, 0, false, false, false
  query.role, query.precision, query.draw, query.stay, query.pin = false, false, false, false, false
  for _, pool in pairs(known.fleet.models) do
    if filter(known.fleet, pool, query, candidates) > 0 then
      return true
    end
  end
  return false
end

--- What the shadow policy would have chosen: only counted and recorded.
function _M.shadow(known, view, r, count, index)
  local shadow = get_policy(known.shadow)
  local choice = shadow and policy_pick(shadow, view, r, candidates, count)
  r.shadow = choice and known.fleet.id[choice] or "full"
  if index then
    metrics.add("shadow", 1, choice == index and "yes" or "no")
  end
end

--- Reserves the request on what was picked.
-- @return boolean: false where another worker has taken the place meanwhile
local function take(known, r, index, now)
  local fleet = known.fleet
  if not claim(r, fleet, index, now) then
    return false
  end
  local target = fleet.target[index]
  r.target, r.backend = target, target.id
  r.upstream, r.alternates = r.pool.upstream_of[index], r.pool.alternates[index]
  r.fallback = fleet.role[index] == "fallback"
  note_served(known, r, index, now)
  if fleet.state[index] ~= "ready" then
    local said_at = known.stale and now - known.snapshot_age_ms or now - ALIVE_MS
    passive_health.doubt(target.place, max(0, said_at), now)
  end
  r.probe = take_probe(target.place, now)
  return true
end
_M.take = take

--- Picks a backend, see `pick`, and reserves the request there.
function _M.pick_and_take(known, r, now, apart)
  for _ = 1, TRIES do
    local index, reason, retry_at = pick(known, r, now, apart)
    if not index then
      return nil, reason, retry_at
    elseif take(known, r, index, now) then
      return index
    end
  end
  return nil, "full"
end

return _M
