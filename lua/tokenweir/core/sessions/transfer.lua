--- Whether it pays to move the KV cache of a session that moves, instead of computing its prompt anew; and what is
-- learned of how long such transfers take.
--
--   local ms, anew = transfer.weigh(memory, fleet, r, how, from, to, held, has, ahead, now)   -- or nil and why not
--   plan = transfer.plan(memory, fleet, r, how, ahead, now)      -- or nil and why not
--   ... the transfer, bounded by plan.most_ms ...
--   transfer.done(memory, plan, took_ms, now)                    -- or failed, or late
--
-- A transfer is expected to take `latency + bytes / bandwidth`, times what transfers to that backend took lately
-- against that. It must beat the prefill that it saves by `MARGIN`, and a request waits for it no longer than that
-- prefill would take.
local max, min = math.max, math.min

--- What computing anew takes over what the transfer takes, at least: both are estimates.
local MARGIN = 1.25
--- A transfer's weight in the running ratio, and that ratio's bounds.
local LEARNED, LEAST, MOST = 0.3, 0.05, 50
--- Slower than configured is half forgotten after so long, else it would never be tried again.
local FORGOTTEN_MS = 60000
--- After the first failure in a row nobody asks for so long; each further one doubles it.
local REST_MS, LONGEST_REST_MS = 1000, 300000

local _M = {}

--- How many times longer than configured transfers to a backend take, as far as was seen.
-- @param place of the backend that takes the cache
function _M.slowness(memory, place, now)
  local known = memory.backend[place]
  local ratio = known.transfer_ratio
  if ratio == 0 then
    return 1
  elseif ratio < 1 then
    return ratio
  end
  return ratio ^ (0.5 ^ (max(0, now - known.transfer_at) / FORGOTTEN_MS))
end

-- Whether what one backend has cached is of use to another: the same model, kept in the same form.
local function compatible(fleet, pool, from, to)
  return fleet.kv_bytes[from] > 0 and fleet.kv_bytes[from] == fleet.kv_bytes[to]
    and fleet.precision[from] == fleet.precision[to] and pool.upstream_of[from] == pool.upstream_of[to]
end

local GIVES = { ready = true, draining = true }

--- What a transfer would take, and what it would save.
-- @param r read: `prompt`, `pool`
-- @param how the settings' `sessions.transfer`
-- @param from, to indices in the fleet; @param held, has tokens of the prompt that are cached there
-- @param ahead ms of prefill that `from` has before it; counts where that one computes what it lacks of the prompt
--   itself (`vllm`), so that nothing is left to compute
-- @return ms that it is expected to take; ms of prefill that it saves; tokens that are moved; tokens that are saved;
--   of the first, the link's part as configured, and the part that is `from`'s own work. Or nil and "impossible",
--   "resting" or "not_worth"
function _M.weigh(memory, fleet, r, how, from, to, held, has, ahead, now)
  if not GIVES[fleet.state[from]] or not compatible(fleet, r.pool, from, to) then
    return nil, "impossible"
  end
  local place = fleet.place[to]
  if now < memory.backend[place].transfer_after then
    return nil, "resting"
  end
  local whole = how.adapter == "vllm"
  local moved = whole and r.prompt or held
  local saved = moved - has
  if saved <= 0 or held <= has then
    return nil, "not_worth"
  end
  local link = how.latency_ms + 1000 * moved * fleet.kv_bytes[to] / how.bandwidth
  local before = whole and ahead + (r.prompt - held) * fleet.prefill[from] or 0
  local expected, anew = before + link * _M.slowness(memory, place, now), saved * fleet.prefill[to]
  if expected * MARGIN > anew then
    return nil, "not_worth"
  end
  return expected, anew, moved, saved, link, before
end

--- Whether the last transfer to a backend was done.
function _M.works(memory, place)
  local known = memory.backend[place]
  return known.transfer_ratio > 0 and known.transfer_failures == 0
end

--- Whether to move the cache of a request's session, which was just given a backend other than its last.
-- @param r read: `place` (where it goes), `moved_from` (the place where its session was), `moved_tokens` (of its prompt
--   that are cached there), `reckoned` (and where it goes), `prompt`, `pool`
-- @param how, ahead see `weigh`
-- @return table: `target` (the place where it goes), `tokens` (that need not be computed), `bytes`, `kv_bytes` (of a
--   token), `expected_ms` (of which `ahead_ms` are that backend's own work), `anew_ms`, `most_ms` (how long the request
--   may wait for it); or nil and "impossible", "resting" or "not_worth"
function _M.plan(memory, fleet, r, how, ahead, now)
  local place = r.place
  local from, to = fleet.at_place[r.moved_from], fleet.at_place[place]
  if from == 0 or to == 0 then
    return nil, "impossible"
  end
  local expected, anew, moved, saved, link, before = _M.weigh(memory, fleet, r, how, from, to, r.moved_tokens,
    r.reckoned, ahead, now)
  if not expected then
    return nil, anew
  end
  return {
    target = place, tokens = saved, bytes = moved * fleet.kv_bytes[to], kv_bytes = fleet.kv_bytes[to], base_ms = link,
    ahead_ms = before, expected_ms = expected, anew_ms = anew, most_ms = min(anew, how.limit_ms),
  }
end

local function learn(memory, plan, took, now)
  local place = plan.target
  local ratio = min(MOST, max(LEAST, (took - plan.ahead_ms) / plan.base_ms))
  local before = _M.slowness(memory, place, now)
  local known = memory.backend[place]
  known.transfer_ratio, known.transfer_at = before + LEARNED * (ratio - before), now
end

local function rest(memory, place, now)
  local known = memory.backend[place]
  local failures = known.transfer_failures
  known.transfer_failures = failures + 1
  known.transfer_after = now + min(LONGEST_REST_MS, REST_MS * 2 ^ failures)
end

--- It is done, after so long.
function _M.done(memory, plan, took, now)
  learn(memory, plan, took, now)
  memory.backend[plan.target].transfer_failures = 0
end

--- It was given up after so long: it takes longer than that.
function _M.late(memory, plan, waited, now)
  learn(memory, plan, 2 * waited, now)
  rest(memory, plan.target, now)
end

--- It failed.
function _M.failed(memory, plan, now)
  rest(memory, plan.target, now)
end

return _M
