--- The policies by name, and the interface that each of them keeps:
--
--   pick(view, request, candidates, count) -> index in the fleet, or nil and
--     "none"  there is no candidate
--     "full"  none has room for the request now: it waits
--
--   view        one table per worker, kept and updated in place:
--     fleet         `fleet.lua`
--     load          FFI array of `tw_load` by index in the fleet: all that is in flight, summed over live workers and
--                   other gateways, and foreign load while the snapshot is fresh. The six totals are filled
--     fill_buckets  function(index) that completes `load[index].bucket_*`; nil: they are filled already
--     now           ms; `random`: function -> [0, 1); `settings`: see `settings()`
--     stale         whether the snapshot is too old for its telemetry to be believed
--     credit        FFI array of doubles by place: tokens of the prompt that a backend has cached (`affinity.reckon`,
--                   which also fills what `stay.lua` reads)
--     transfer      the settings' `sessions.transfer` where the cache of this request's session can be moved, or nil
--   request     prompt, n, max_tokens or nil; mean, median, q90, sd of one sequence's output; class "low" or "high";
--               home and stay of a session, or nil (`affinity.locate`). Written: verdict, why a session went there
--   candidates  indices 1 .. count of the usable backends (`eligible.lua`)
--
-- A pick reserves nothing: the caller reserves on the chosen backend before the next pick.
-- A policy says of itself: `name`; `telemetry` (it lives on readings, so a stale snapshot replaces it by least in
-- flight); `by_turn` (it gives every candidate its turn, see `eligible.lua`).
local ffi = require "ffi"
local contract = require "tokenweir.contract"
local defaults = require "tokenweir.core.documents.defaults"
local least_inflight = require "tokenweir.core.policy.least_inflight"

local type, pairs, tostring = type, pairs, tostring
local random = math.random

local POLICIES = {
  round_robin = require "tokenweir.core.policy.round_robin",
  least_conn = require "tokenweir.core.policy.least_conn",
  least_inflight = least_inflight,
  hybrid = require "tokenweir.core.policy.hybrid",
  predictive = require "tokenweir.core.policy.predictive",
}

--- Numbers of the policies where the snapshot does not tell; the names are those of its `thresholds`.
local DEFAULTS = defaults.of("snapshot", "thresholds")

local _M = {}

--- @return the policy of that name, or nil and what is wrong
function _M.get(name)
  local policy = POLICIES[name]
  if not policy then
    return nil, "no policy is named '" .. tostring(name) .. "'"
  end
  return policy
end

--- The policies' numbers from a snapshot's `thresholds`, complete.
-- @param thresholds table or nil; checked already (`check.lua`)
function _M.settings(thresholds)
  local settings = {}
  for name, default in pairs(DEFAULTS) do
    local value = type(thresholds) == "table" and thresholds[name]
    settings[name] = type(value) == "number" and value or default
  end
  return settings
end

local NO_CREDIT = ffi.new("double[?]", contract.numbers.max_backends)

--- A view without load, to be kept and updated.
function _M.new_view()
  return { random = random, settings = _M.settings(), now = 0, stale = false, credit = NO_CREDIT }
end

--- The policy that decides: `policy` itself, or what it fades to on a stale snapshot.
function _M.serving(policy, stale)
  return stale and policy.telemetry and least_inflight or policy
end

--- Picks among what `eligible.filter` found. Ramping backends that were not drawn come in where all others are full: a
-- ramp spares what is new, but no request waits while something that has room stands by.
-- @param served the policy that decides
-- @param spare number of candidates after the first `count` that were not drawn, or nil
function _M.among(served, view, request, candidates, count, spare)
  local index, reason = served.pick(view, request, candidates, count)
  if index or reason ~= "full" or not spare then
    return index, reason
  end
  for k = 1, spare do
    candidates[k] = candidates[count + k]
  end
  return served.pick(view, request, candidates, spare)
end

--- Picks by a policy, or by what it fades to.
-- @param policy as `get` returned it
function _M.pick(policy, view, request, candidates, count)
  return _M.serving(policy, view.stale).pick(view, request, candidates, count)
end

return _M
