--- What it costs to send a request to a backend: the figures by which candidates are ranked. Lower is better.
local step_time = require("tokenweir.core.backend.step_time").of

local max, min = math.max, math.min

local _M = {}

local WORST_ERROR_RATE = 0.9

--- What all costs are multiplied by: the operator's weight, and the tries that a backend which fails some requests
-- takes on average. So one that fails fast, and is empty for that reason, does not attract.
local function burden(fleet, i)
  return 1 / ((1 - min(fleet.error_rate[i], WORST_ERROR_RATE)) * fleet.weight[i])
end

--- ms until the request is complete, at the speed that the backend will have then:
--   prefill ahead + own prefill + mean output * step, with step the time of a step of n sequences that hold `future`,
-- and future = held + half of the remaining. Two factors even out the load before anything is slow: step against the
-- step with this request alone, as the backend will not get emptier meanwhile; and 1 + crowding * n / relative speed.
--
-- Of what it costs the n others, one part counts: while its prompt is computed they all stand still. `stall` of that
-- time is added, by the speed of the backend against its peers: what the others lose are tokens, and a fast one, where
-- long outputs go, loses more of them in a ms. All of it (1) shortens the mean, but parts the fleet into backends with
-- prompts and backends with long outputs, whose tokens then come too slowly. What it slows their steps by besides is
-- left out on purpose: counting it packs requests together and loses goodput.
-- What the backend has of the prompt in its cache (`view.credit`) is no prefill of it.
-- @param view see `policy/init.lua`; @param i index in the fleet; @param own see `demand.measure`
function _M.completion(view, i, own)
  local fleet, row, settings = view.fleet, view.load[i], view.settings
  local n, prompt = row.n + own.n, max(0, own.prompt - view.credit[fleet.place[i]])
  local alone = own.prompt + 0.5 * own.remaining
  local step = step_time(fleet, i, n, row.held + 0.5 * row.remaining + alone)
  local speed = fleet.relative_speed[i]
  local crowded = step / step_time(fleet, i, own.n, alone) * (1 + settings.crowding * n / speed)
  local prefill = prompt * fleet.prefill[i]
  local ms = row.prefill * fleet.prefill[i] + prefill + own.expected * step
  return (ms * crowded + settings.stall * prefill * row.n * speed) * burden(fleet, i)
end

--- Sequences in flight, counted by how long the backend takes over them: needs no prediction and no telemetry.
function _M.inflight(view, i, own)
  local fleet = view.fleet
  return (view.load[i].n + own.n) / fleet.relative_speed[i] * burden(fleet, i)
end

return _M
