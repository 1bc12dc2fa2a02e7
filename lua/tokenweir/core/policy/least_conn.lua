--- The classic baseline: least memory in use, as telemetry shows it.
local highest = require("tokenweir.core.policy.score").highest

local _M = { name = "least_conn", telemetry = true }

local function free(fleet, i)
  return 1 - fleet.memory[i]
end

--- See `policy/init.lua`.
function _M.pick(view, request, candidates, count)
  return highest(view, request, candidates, count, free)
end

return _M
