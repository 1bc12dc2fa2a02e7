--- How long a decode step takes on a backend: the straight line that the sidecar fits (`sidecar/control/cost_fit.py`).
local _M = {}

--- @param fleet see `fleet.lua`; @param i index in it
-- @param n sequences in the step; @param kv tokens that they hold
-- @return ms
function _M.of(fleet, i, n, kv)
  return fleet.base[i] + fleet.per_sequence[i] * n + fleet.per_kv_token[i] * kv
end

return _M
