--- Dynamic weight by memory and output class: score = (100 - memory %) * 1.2 for short outputs, * 0.3 for long
-- ones. The sidecar has the scores ready in the snapshot (`low`, `high`). A factor common to all backends does not
-- change which one a single request goes to; it matters where waiting requests are compared.
local highest = require("tokenweir.core.policy.score").highest

local _M = { name = "hybrid", telemetry = true }

local function low(fleet, i)
  return fleet.low[i]
end

local function high(fleet, i)
  return fleet.high[i]
end

--- See `policy/init.lua`.
function _M.pick(view, request, candidates, count)
  return highest(view, request, candidates, count, request.class == "low" and low or high)
end

return _M
