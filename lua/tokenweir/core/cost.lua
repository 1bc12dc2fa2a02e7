--- What it costs to send a request to a backend: the figures by which candidates are ranked. Lower is better.
local _M = {}

local WORST_ERROR_RATE = 0.9

--- What all costs are multiplied by: the operator's weight, and the tries that a backend which fails some requests
-- takes on average. So one that fails fast, and is empty for that reason, does not attract.
local function burden(fleet, i)
  local errors = fleet.error_rate[i]
  if errors > WORST_ERROR_RATE then
    errors = WORST_ERROR_RATE
  end
  return 1 / ((1 - errors) * fleet.weight[i])
end

--- ms until the request is complete, at the speed that the backend will have then:
--   prefill ahead + own prefill + mean output * (base + per_sequence * n + per_kv_token * future)
-- with future = held + half of the remaining, times a mild crowding factor, 1 + crowding * (n + 1) / relative speed.
-- What it costs the n others is left out on purpose: counting it packs requests together and loses goodput.
-- What the backend has of the prompt in its cache (`view.credit`) is no prefill of it.
-- @param view see `policy/init.lua`; @param i index in the fleet; @param own see `demand.measure`
function _M.completion(view, i, own)
  local fleet, row = view.fleet, view.load[i]
  local n, prompt = row.n + own.n, own.prompt - view.credit[fleet.slot[i]]
  if prompt < 0 then
    prompt = 0
  end
  local future = row.held + own.prompt + 0.5 * (row.remaining + own.remaining)
  local step = fleet.base[i] + fleet.per_sequence[i] * n + fleet.per_kv_token[i] * future
  local ms = (row.prefill + prompt) * fleet.prefill[i] + own.expected * step
  return ms * (1 + view.settings.crowding * n / fleet.relative_speed[i]) * burden(fleet, i)
end

--- Sequences in flight, counted by how long the backend takes over them: needs no prediction and no telemetry.
function _M.inflight(view, i, own)
  local fleet = view.fleet
  return (view.load[i].n + own.n) / fleet.relative_speed[i] * burden(fleet, i)
end

return _M
