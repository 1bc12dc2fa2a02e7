--- The candidate of highest score: what the policies that read nothing but telemetry share. They make no request
-- wait, and do not see what was sent since the telemetry was read: all that arrives between two readings goes to
-- one backend.
local least_inflight = require "tokenweir.core.policy.least_inflight"
local rotation = require "tokenweir.core.policy.rotation"

local start, place = rotation.start, rotation.at
local huge = math.huge

local _M = {}

--- A backend without telemetry counts as the average of those with it, neither free nor full; where none has any,
-- least in flight decides.
-- @param view, request, candidates, count see `policy/init.lua`
-- @param score function(fleet, index) -> number, asked only where the backend's memory use is known
-- @return index, or nil and why not
function _M.highest(view, request, candidates, count, score)
  local fleet = view.fleet
  local memory, weight = fleet.memory, fleet.weight
  local sum, known = 0, 0
  for k = 1, count do
    local i = candidates[k]
    if memory[i] >= 0 then
      sum, known = sum + score(fleet, i), known + 1
    end
  end
  if known == 0 then
    return least_inflight.pick(view, request, candidates, count)
  end
  local average = sum / known
  local best, most = nil, -huge
  local shift = start(view, count)
  for k = 1, count do
    local i = candidates[place(k, shift, count)]
    local value = (memory[i] >= 0 and score(fleet, i) or average) * weight[i]
    if value > most then
      best, most = i, value
    end
  end
  return best
end

return _M
