--- Fewest sequences in flight, counted by how long the backend takes over them, among those that have room.
-- It needs nothing that ages, so it is what the policies that read telemetry fade to on a stale snapshot.
local choose = require "tokenweir.core.policy.choose"
local cost = require "tokenweir.core.backend.cost"

local least, inflight = choose.least, cost.inflight

local _M = { name = "least_inflight" }

--- See `policy/init.lua`.
function _M.pick(view, request, candidates, count)
  return least(view, request, candidates, count, inflight)
end

return _M
