--- The backends of a model that may get a request now.
local health = require "tokenweir.core.backend.health"

local usable, unserved_rate = health.usable, health.unserved_rate
local EJECTED_BY_STATUS = health.CAUSES.status

--- Who serves, in this order: the next only where none of those before it can.
local ROLES = { "active", "standby", "fallback" }
--- States that mean nothing any more on a stale snapshot: what was down when the sidecar went may be long back.
local OUTDATED = { down = true, starting = true }

--- Multiples of the golden ratio, modulo one, are spread evenly whatever their number.
local GOLDEN = 0.6180339887498949

local _M = {}

--- Whether passive health lets a request through to backend i. One that hung stays out while it cannot be scraped:
-- time alone does not thaw it, and a probe would only hold a client's request.
local function healthy(h, fleet, i, now, stale)
  if h.ejected_until == 0 then
    return true
  end
  return usable(h, now) and (h.hung == 0 or stale or fleet.scrape_failures[i] == 0)
end

local function was_tried(query, place)
  for k = 1, query.tried_count do
    if query.tried[k] == place then
      return true
    end
  end
  return false
end

--- Lets a ramping backend (admit < 1) take part in so many picks that it gets `admit` of its fair share: whenever
-- it takes part it tends to win, being empty, so it takes part in admit / rivals of them; where each has its turn,
-- in admit.
--
-- The draw is the request's, so that one which waits does not draw again and again until it wins; each backend turns
-- it on by a step of its own, so that one request is not drawn for all of them.
--
-- A session that was served before is no business of theirs, unless it lives there; a new one, if it has its place
-- there by the ring.
local function thin(fleet, query, out, count)
  local settings, draw, stay = query.settings, query.draw or query.random(), query.stay
  local rivals = count
  if query.by_turn then
    rivals = 1
  elseif count > settings.score_all_up_to then
    rivals = settings.sample  -- of more, only so many are compared anyway
  end
  local kept = 0
  for k = 1, count do
    local i = out[k]
    local admit = fleet.admit[i]
    if admit >= 1 or i == stay or not stay and (draw + fleet.place[i] * GOLDEN) % 1 * rivals < admit then
      kept = kept + 1
      out[k], out[kept] = out[kept], i
    end
  end
  return kept
end

--- Whether the request is longer than backend i can take at all, as far as its length is known.
local function too_long(fleet, i, query)
  local context = fleet.context[i]
  return context > 0 and query.prompt ~= nil and query.prompt > context
end

--- How much is overlooked, from nothing on: the next only where the ones before leave no backend.
--   any_length  that the prompt seems longer than a backend takes: the engine knows better
--   panic       ejections for error answers: one bad client must not close the fleet
--   late        that a backend is down only because it did not answer the sidecar in time, which says as much of the
--               sidecar
-- `word` is what `filter` says of it.
local STRICT = { any_length = false, panic = false, late = false }
local ANY_LENGTH = { any_length = true, panic = false, late = false, word = "context" }
local PANIC = { any_length = true, panic = true, late = false, word = "panic" }
local LATE = { any_length = true, panic = false, late = true, word = "late" }

-- Why backends were left out in one call of `filter`.
local left_out = { ejected = false, tried = false, long = false, held = false, retry_at = nil }

--- Collects the backends of one role that satisfy everything but the ramp.
-- @param rule what is overlooked
-- @return count, and whether one of them ramps
local function collect(fleet, pool, query, role, out, rule)
  local panic, any_length, late = rule.panic, rule.any_length, rule.late
  local rows, now, stale = query.health, query.now, query.stale
  local precision = query.precision
  local group, upstream, pin = query.credential_group, query.upstream, query.pin
  local states, roles = fleet.state, fleet.role
  local count, ramping = 0, false
  for k = 1, pool.size do
    local i = pool[k]
    local state = states[i]
    if (state == "ready" or stale and OUTDATED[state] or late and fleet.late[i] or pin and state == "draining")
      and (pin and fleet.place[i] == pin or not pin and roles[i] == role)
      and (not precision or fleet.precision[i] == precision)
      and (not group or fleet.credential_group[i] == group) and (not upstream or pool.upstream[k] == upstream)
    then
      local place = fleet.place[i]
      local h = rows[place]
      if query.tried_count > 0 and was_tried(query, place) then
        left_out.tried = true
      elseif query.apart == place then
        left_out.held = true
      elseif not any_length and too_long(fleet, i, query) then
        left_out.long = true
      elseif healthy(h, fleet, i, now, stale) or (panic and h.hung == 0 and h.cause == EJECTED_BY_STATUS) then
        count = count + 1
        out[count] = i
        ramping = ramping or fleet.admit[i] < 1
        fleet.error_rate[i] = unserved_rate(h, now)
      else
        left_out.ejected = true
        local at = h.probe_until > h.ejected_until and h.probe_until or h.ejected_until
        local first = left_out.retry_at
        left_out.retry_at = first and first < at and first or at
      end
    end
  end
  return count, ramping
end

-- The same for a usual request: nothing that was tried, pinned or wanted. Of a large fleet this loop is most of what a
-- pick costs. Why a backend was left out is asked only where none is left, and `collect` tells that.
local function collect_usual(fleet, pool, query, role, out)
  local rows, now, prompt = query.health, query.now, query.prompt or 0
  local states, roles, place_of = fleet.state, fleet.role, fleet.place
  local contexts, admits, rates = fleet.context, fleet.admit, fleet.error_rate
  local count, ramping = 0, false
  for k = 1, pool.size do
    local i = pool[k]
    if states[i] == "ready" and roles[i] == role then
      local h = rows[place_of[i]]
      local context = contexts[i]
      if (h.ejected_until == 0 or healthy(h, fleet, i, now, false)) and (context == 0 or prompt <= context) then
        count = count + 1
        out[count] = i
        rates[i] = (h.error_rate ~= 0 or h.refusal_rate ~= 0) and unserved_rate(h, now) or 0
        if admits[i] < 1 then
          ramping = true
        end
      end
    end
  end
  return count, ramping
end

-- The same of the first role that has any, or of the one that is asked for.
local function collect_roles(fleet, pool, query, out, rule)
  local asked = query.role
  if rule == STRICT and not (query.stale or query.pin or query.apart or query.precision
    or query.credential_group or query.upstream) and query.tried_count == 0
  then
    local role = asked or ROLES[1]
    local count, ramping = collect_usual(fleet, pool, query, role, out)
    if count > 0 then
      return count, ramping, role
    end
  end
  for k = 1, (asked or query.pin) and 1 or #ROLES do
    local role = asked or ROLES[k]
    local count, ramping = collect(fleet, pool, query, role, out, rule)
    if count > 0 then
      return count, ramping, role
    end
  end
  return 0, false
end

--- @param fleet see `fleet.lua`; @param pool of a model: `fleet.models[name]`
-- @param query table, reused by the caller: `now` (ms), `health` (FFI array of `tw_health` by place), `stale` (whether
--   telemetry is too old: what it says is down or starting takes part then, to be probed), `random` (function ->
--   [0, 1)), `settings` (of the policies), `by_turn` (of the policy), `prompt` (tokens) or nil, `tried` and
--   `tried_count` (places already tried for this request), `apart` (a place that is held for another request) or nil,
--   `role` (the only one that may serve) or nil, `precision` (the variant that is wanted) or nil, `draw` (a number in
--   [0, 1) that stays the request's) or nil: a new one, `stay` (the index of the backend where its session lives) or
--   nil, `pin` (the place of the only backend that can serve it, whatever its role, and while it drains too) or nil,
--   and for a retry `credential_group` and `upstream` (the engine's
--   model name), which must be the same then
-- @param out array that gets the indices 1 .. count, all of one role, and after them those that ramp and were not drawn
-- @return count, a word or nil, a time or nil, and how many were not drawn (nil: none). The word tells
--   with candidates: "context" (the prompt seems longer than any of them takes), "panic" (all had been ejected for
--   error answers and are tried all the same), "late" (the sidecar waited for all of them in vain: they are probed);
--   without: "full" (what there is is held for another), "ejected" (and the time, ms, when the first may be probed),
--   "tried" or "down"
function _M.filter(fleet, pool, query, out)
  left_out.ejected, left_out.tried, left_out.long, left_out.held, left_out.retry_at = false, false, false, false, nil
  local rule = STRICT
  local count, ramping, role = collect_roles(fleet, pool, query, out, rule)
  if count == 0 and left_out.held then
    return 0, "full"
  elseif count == 0 and left_out.long then
    rule = ANY_LENGTH
    count, ramping, role = collect_roles(fleet, pool, query, out, rule)
  end
  if count == 0 and left_out.ejected then
    rule = PANIC
    count, ramping, role = collect_roles(fleet, pool, query, out, rule)
  end
  if count == 0 then
    rule = LATE
    count, ramping, role = collect_roles(fleet, pool, query, out, rule)
  end
  if count == 0 then
    return 0, left_out.ejected and "ejected" or left_out.tried and "tried" or "down", left_out.retry_at
  end
  if ramping then
    local kept = thin(fleet, query, out, count)
    if kept > 0 then
      return kept, rule.word, nil, kept < count and count - kept or nil
    end
    -- All of them ramp and none was drawn: somebody has to serve.
    count = collect(fleet, pool, query, role, out, rule)
  end
  return count, rule.word
end

return _M
