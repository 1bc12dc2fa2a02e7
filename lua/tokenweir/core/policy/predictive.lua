--- The default policy: among the backends that have room by predicted peak, the one where the request itself is
-- complete first, at the speed that the backend will have then. Its figures of speed, capacity and foreign load age.
local choose = require "tokenweir.core.policy.choose"
local cost = require "tokenweir.core.backend.cost"

local least, completion = choose.least, cost.completion

local _M = { name = "predictive", telemetry = true }

--- See `policy/init.lua`.
function _M.pick(view, request, candidates, count)
  return least(view, request, candidates, count, completion)
end

return _M
