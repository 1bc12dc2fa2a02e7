--- The backends of a model that may get a request now.
local health = require "tokenweir.core.health"

local usable, unserved_rate = health.usable, health.unserved_rate
local EJECTED_BY_STATUS = health.CAUSES.status

local _M = {}

--- Whether passive health lets a request through to backend i. One that hung stays out while it cannot be scraped:
-- time alone does not thaw it, and a probe would only hold a client's request.
local function healthy(h, fleet, i, now, stale)
  if h.ejected_until == 0 then
    return true
  end
  return usable(h, now) and (h.hung == 0 or stale or fleet.scrape_failures[i] == 0)
end

local function was_tried(query, slot)
  for k = 1, query.tried_count do
    if query.tried[k] == slot then
      return true
    end
  end
  return false
end

--- Lets a ramping backend (admit < 1) take part in so many picks that it gets `admit` of its fair share: whenever
-- it takes part it tends to win, being empty, so it takes part in admit / rivals of them; where each has its turn,
-- in admit.
local function thin(fleet, query, out, count)
  local settings, random = query.settings, query.random
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
    if admit >= 1 or random() * rivals < admit then
      kept = kept + 1
      out[kept] = i
    end
  end
  return kept
end

--- Whether the request is longer than backend i can take at all, as far as its length is known.
local function too_long(fleet, i, query)
  local context = fleet.context[i]
  return context > 0 and query.prompt ~= nil and query.prompt > context
end

--- Collects what satisfies everything but the ramp.
-- @param panic whether ejections after error answers are overlooked; @param any_context whether lengths are
local function collect(fleet, pool, query, out, panic, any_context)
  local rows, now, stale = query.health, query.now, query.stale
  local role = query.role or "active"
  local group, upstream = query.credential_group, query.upstream
  local count, ramping, ejected, tried, long, retry_at = 0, false, false, false, false, nil
  for k = 1, pool.size do
    local i = pool[k]
    if fleet.state[i] == "ready" and fleet.role[i] == role
      and (not group or fleet.credential_group[i] == group) and (not upstream or pool.upstream[k] == upstream)
    then
      local slot = fleet.slot[i]
      local h = rows[slot]
      if query.tried_count > 0 and was_tried(query, slot) then
        tried = true
      elseif not any_context and too_long(fleet, i, query) then
        long = true
      elseif healthy(h, fleet, i, now, stale) or (panic and h.hung == 0 and h.cause == EJECTED_BY_STATUS) then
        count = count + 1
        out[count] = i
        ramping = ramping or fleet.admit[i] < 1
        fleet.error_rate[i] = unserved_rate(h, now)
      else
        ejected = true
        local at = h.probe_until > h.ejected_until and h.probe_until or h.ejected_until
        if not retry_at or at < retry_at then
          retry_at = at
        end
      end
    end
  end
  return count, ramping, ejected, tried, long, retry_at
end

--- @param fleet see `fleet.lua`; @param pool of a model: `fleet.models[name]`
-- @param query table, reused by the caller: `now` (ms), `health` (FFI array of `tw_health` by slot), `stale` (whether
--   telemetry is too old), `random` (function -> [0, 1)), `settings` (of the policies), `by_turn` (of the policy),
--   `prompt` (tokens) or nil, `tried` and `tried_count` (slots already tried for this request), `role` (default
--   "active"), and for a retry `credential_group` and `upstream` (the engine's model name), which must be the same then
-- @param out array that gets the indices 1 .. count
-- @return count, a word or nil, a time or nil. The word tells
--   with candidates: "context" (the prompt seems longer than any of them takes: the engine knows better), "panic" (all
--   had been ejected for error answers and are tried all the same: one bad client must not close the fleet);
--   without: "ejected" (and the time, ms, when the first may be probed), "tried" or "down"
function _M.filter(fleet, pool, query, out)
  local count, ramping, ejected, tried, long, retry_at = collect(fleet, pool, query, out, false, false)
  local word, _
  if count == 0 and long then
    count, ramping, ejected, tried, _, retry_at = collect(fleet, pool, query, out, false, true)
    word = "context"
  end
  if count == 0 and ejected then
    count, ramping = collect(fleet, pool, query, out, true, true)
    word = "panic"
  end
  if count == 0 then
    return 0, ejected and "ejected" or tried and "tried" or "down", retry_at
  end
  if ramping then
    local kept = thin(fleet, query, out, count)
    if kept > 0 then
      return kept, word
    end
    -- All of them ramp and none was drawn: somebody has to serve.
    count = collect(fleet, pool, query, out, word == "panic", word ~= nil)
  end
  return count, word
end

return _M
