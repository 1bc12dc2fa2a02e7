--- A small discrete simulation of engines that fail hard when their KV memory is full: every request in flight
-- there gets an error. Requests arrive, wait first come first served while the policy says "full", are prefilled
-- in chunks, decoded one token a step, and leave. Returns a function
--   run(policy, fleet, arrivals, prompts, outputs, predicted, capacity) -> aborted, completed, p99 ms of the completed
-- where `capacity` is what an engine holds (KV tokens), whatever the fleet says of it.
local load = require "tokenweir.core.backend.load"
local registry = require "tokenweir.core.policy"

local floor, min = math.floor, math.min

local CHUNK = 512      -- prompt tokens that one step takes in
local RETRY_MS = 20    -- how often the head of the queue is tried again
local TAIL_MS = 600000 -- how long after the last arrival at most

local function new_engine()
  return { now = 0, held = 0, running = {}, prefilling = {} }
end

--- Everything in flight on the engine fails.
local function abort(engine, row, result)
  for _, list in ipairs { engine.prefilling, engine.running } do
    for k, r in ipairs(list) do
      load.release(row, r)
      result.aborted = result.aborted + 1
      list[k] = nil
    end
  end
  engine.held = 0
end

--- One step: a chunk of the first prompt, one token of each running request.
local function step(engine, i, fleet, row, capacity, result)
  local running, n = engine.running, #engine.running
  local ms = fleet.base[i] + fleet.per_sequence[i] * n + fleet.per_kv_token[i] * engine.held
  local r = engine.prefilling[1]
  if r then
    local chunk = min(CHUNK, r.to_prefill)
    ms = ms + chunk * fleet.prefill[i]
    r.to_prefill = r.to_prefill - chunk
    engine.held = engine.held + chunk
    if r.to_prefill == 0 then
      table.remove(engine.prefilling, 1)
      running[n + 1] = r
      load.first_token(row, r)
    end
  end
  engine.now = engine.now + ms
  engine.held = engine.held + n
  if engine.held > capacity then
    return abort(engine, row, result)
  end
  for k = n, 1, -1 do
    r = running[k]
    r.made = r.made + 1
    if r.made >= r.output then
      engine.held = engine.held - r.prompt - r.made
      load.release(row, r)
      result.times[#result.times + 1] = engine.now - r.arrival
      running[k] = running[#running]
      running[#running] = nil
    else
      load.progress(row, r, r.made)
    end
  end
end

local function advance(engine, i, fleet, row, now, capacity, result)
  while engine.now < now do
    if #engine.running == 0 and #engine.prefilling == 0 then
      engine.now = now
    else
      step(engine, i, fleet, row, capacity, result)
    end
  end
end

return function(name, fleet, arrivals, prompts, outputs, predicted, capacity)
  local policy, view = registry.get(name), registry.new_view()
  local loads = load.new(fleet.size)
  view.fleet, view.load = fleet, loads
  local engines, candidates = {}, {}
  for i = 1, fleet.size do
    engines[i], candidates[i] = new_engine(), i
  end
  local result = { aborted = 0, times = {} }
  local queue, first = {}, 1
  local next_arrival, now = 1, 0

  while next_arrival <= #arrivals or first <= #queue or result.aborted + #result.times < #arrivals do
    now = now + RETRY_MS
    if now > arrivals[#arrivals] + TAIL_MS then
      break
    end
    while next_arrival <= #arrivals and arrivals[next_arrival] <= now do
      local k = next_arrival
      queue[#queue + 1] = {
        arrival = arrivals[k], prompt = prompts[k], to_prefill = prompts[k], output = outputs[k], made = 0, n = 1,
        mean = predicted.mean, sd = predicted.sd, class = predicted.class,
      }
      next_arrival = k + 1
    end
    for i = 1, fleet.size do
      advance(engines[i], i, fleet, loads[i], now, capacity, result)
    end
    while first <= #queue do
      local r = queue[first]
      local i = registry.pick(policy, view, r, candidates, fleet.size)
      if not i then
        break
      end
      load.reserve(loads[i], r)
      engines[i].prefilling[#engines[i].prefilling + 1] = r
      first = first + 1
    end
  end
  table.sort(result.times)
  for i = 1, fleet.size do
    local row = loads[i]
    assert(row.n == 0 and row.held == 0 and row.remaining == 0 and row.variance == 0, "the ledger is not zero")
  end
  return result.aborted, #result.times, result.times[floor(0.99 * #result.times)] or 0
end
