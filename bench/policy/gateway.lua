--- A gateway without nginx: the modules of `core` on plain tables, driven by the simulator. Nothing is decided here.
--
--   local gateway = new(policy, seed)
--   gateway.apply(snapshot)                            -- a decoded `tw:snapshot`
--   local index = gateway.pick(id, now)                -- 1 .. n; 0: full, it waits; -1: nobody can be reached
--   gateway.take(id, index, now); gateway.first_token(id, joined, base); gateway.sync(index, steps); gateway.release(id)
--
-- The progress of streams is not told token by token: a sequence that joined its engine's decoding steps at `joined`
-- with `base` tokens out has produced base + steps - joined.
local check = require "tokenweir.core.check"
local eligible = require "tokenweir.core.eligible"
local fleets = require "tokenweir.core.fleet"
local health = require "tokenweir.core.health"
local line = require "tokenweir.core.queue.line"
local load = require "tokenweir.core.load"
local policies = require "tokenweir.core.policy"
local running = require "tokenweir.core.running"

local has_skill, skill = pcall(require, "tokenweir.core.skill")

local MODEL = "m"
local FULL, NOBODY = 0, -1
local CLASS_THRESHOLD = 50

local function decoded(value)
  if type(value) ~= "table" then
    return value
  end
  local copy = {}
  for key, item in pairs(value) do
    copy[key] = decoded(item)
  end
  return copy
end

return function(policy_name, seed)
  math.randomseed(seed)
  local random = math.random
  local policy = policies.get(policy_name)
  assert(policy, "no such policy")
  local view = policies.new_view()
  local fleet, loads, rows, pool, size
  local candidates = {}
  local records = {}
  -- By server: the records that decode there, and the steps that they were last brought up to.
  local decoding, counts, synced = {}, {}, {}
  local query = { stale = false, random = random, tried = {}, tried_count = 0 }
  local waiting, numbers = line.new(), {}
  local stats, reference = nil, {}
  local judged = has_skill and skill.new() or { left = false }

  local gateway = {}

  --- Puts a snapshot into effect. The fleet's size stays.
  function gateway.apply(snapshot)
    snapshot = decoded(snapshot)
    assert(check.document(snapshot, "snapshot"))
    local slots, last = {}, -1
    fleet = assert(fleets.build(snapshot, nil, function(id)
      last = last + 1
      slots[id] = last
      return last
    end))
    if not rows then
      size = fleet.size
      rows, loads = health.new(size), load.new(size)
      for i = 1, size do
        decoding[i], counts[i], synced[i] = {}, 0, 0
      end
    end
    pool = fleet.models[MODEL]
    view.fleet, view.load = fleet, loads
    view.settings = policies.settings(snapshot.thresholds)
    query.settings, query.health, query.by_turn = view.settings, rows, policy.by_turn
  end

  --- What the telemetry says of one server, between two snapshots that are built anew.
  function gateway.read(i, memory, low, high)
    fleet.memory[i], fleet.low[i], fleet.high[i] = memory, low, high
  end

  --- Sets thresholds that move (`z`).
  function gateway.threshold(name, value)
    view.settings[name] = value
  end

  --- A request by its number; `mean` < 0: by the running figures.
  function gateway.request(id, prompt, mean, median, q90, sd, session_index, cached)
    local r = { prompt = prompt, n = 1, draw = random() }
    if mean < 0 or judged.left then
      running.predict(stats, nil, CLASS_THRESHOLD, nil, r)
    else
      r.mean, r.median, r.q90, r.sd = mean, median, q90, sd
      r.class = median < CLASS_THRESHOLD and "low" or "high"
    end
    r.said_median, r.said_q90 = median, q90
    if session_index > 0 then
      r.session_index, r.cached = session_index, cached
    end
    records[id] = r
  end

  --- Figures of the model's completions, as the sidecar publishes them.
  function gateway.stats(count, mean, median, spread)
    stats = { count = count, mean = mean, median = median, spread = spread }
  end

  function gateway.pick(id, now)
    local r = records[id]
    query.now, view.now = now, now
    query.prompt, query.draw = r.prompt, r.draw
    local count = eligible.filter(fleet, pool, query, candidates)
    if count == 0 then
      return NOBODY
    end
    local index, reason = policies.pick(policy, view, r, candidates, count)
    return index or (reason == "full" and FULL or NOBODY)
  end

  function gateway.take(id, index, now)
    load.reserve(loads[index], records[id])
    records[id].at = index
    health.probe(rows[index - 1], now)
  end

  local function leave(r)
    local i, k = r.at, r.place
    if k then
      local list, last = decoding[i], counts[i]
      list[k] = list[last]
      list[k].place = k
      list[last] = nil
      counts[i], r.place = last - 1, nil
    end
  end

  --- The first token, or the next one after a preemption, is out: it decodes from now on.
  function gateway.first_token(id, joined, base)
    local r = records[id]
    local i = r.at
    load.first_token(loads[i], r)
    counts[i] = counts[i] + 1
    decoding[i][counts[i]] = r
    r.place, r.joined, r.base = counts[i], joined, base
  end

  --- It lost its memory and waits in the engine.
  function gateway.paused(id)
    leave(records[id])
  end

  --- Brings the streams of a server up to its `steps`-th decoding step.
  function gateway.sync(i, steps)
    if synced[i] == steps then
      return
    end
    synced[i] = steps
    local list, row, progress = decoding[i], loads[i], load.progress
    for k = 1, counts[i] do
      local r = list[k]
      progress(row, r, r.base + steps - r.joined)
    end
  end

  --- It is over, well or not.
  function gateway.release(id)
    local r = records[id]
    if not r then
      return
    end
    if r.at then
      leave(r)
      load.release(loads[r.at], r)
    end
    records[id] = nil
  end

  --- It came back unsent: its server was not there.
  function gateway.refused(id, now)
    local r = records[id]
    load.release(loads[r.at], r)
    health.failure(rows[r.at - 1], now, health.CAUSES.connect)
    query.tried_count = query.tried_count + 1
    query.tried[query.tried_count] = r.at - 1
    r.at = nil
  end

  --- The request is settled: what it tried is forgotten.
  function gateway.settled()
    query.tried_count = 0
  end

  --- What passive health hears of a server: "ok", "broke" or "memory".
  function gateway.outcome(i, what, now)
    local h = rows[i - 1]
    if what == "ok" then
      health.success(h, now)
    elseif what == "memory" then
      health.exhausted(h, now)
    else
      health.failure(h, now, health.CAUSES.broke)
    end
  end

  --- What came of a prediction.
  function gateway.learn(id, output)
    local r = records[id]
    if has_skill and r.said_median >= 0 then
      running.predict(stats, nil, CLASS_THRESHOLD, nil, reference)
      skill.judge(judged, output, r.said_median, r.said_q90, reference.median, reference.q90)
    end
  end

  function gateway.enter(id, ticket)
    numbers[ticket] = id
    line.insert(waiting, ticket, id, 0)
  end

  --- The number of the request whose turn it is, or -1.
  function gateway.head()
    local id = line.at(waiting, 1)
    return id or -1
  end

  function gateway.leave(ticket)
    line.remove(waiting, ticket, numbers[ticket])
    numbers[ticket] = nil
  end

  --- Whether predictions are left for the running figures.
  function gateway.left()
    return judged.left
  end

  --- What is in flight, for checks: sequences, held and remaining tokens of all servers.
  function gateway.totals()
    local n, held, remaining = 0, 0, 0
    for i = 1, size do
      n, held, remaining = n + loads[i].n, held + loads[i].held, remaining + loads[i].remaining
    end
    return n, held, remaining
  end

  return gateway
end
