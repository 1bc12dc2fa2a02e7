


--- A gateway without nginx: the modules of `core` on plain tables, driven by the simulator. Nothing is decided here.
--
--   local gateway = new(policy, seed)
--   gateway.apply(snapshot)                            -- a decoded `tw:snapshot`
--   local index = gateway.pick(id, now)                -- 1 .. n; 0: full, it waits; -1: nobody can be reached
--   gateway.take(id, index, now); gateway.first_token(id, joined, base); gateway.sync(index, steps)
--   gateway.release(id)
--
-- The progress of streams is not told token by token: a sequence that joined its engine's decoding steps at `joined`
-- with `base` tokens out has produced base + steps - joined.
local affinity = require "tokenweir.core.sessions.affinity"
local cache_memory = require "tokenweir.core.sessions.cache_memory"
local check = require "tokenweir.core.documents.check"
local demand = require "tokenweir.core.backend.demand"
local eligible = require "tokenweir.core.backend.eligible"
local fleets = require "tokenweir.core.backend.fleet"
local health = require "tokenweir.core.backend.health"
local load = require "tokenweir.core.backend.load"
local policies = require "tokenweir.core.policy"
local prefix_blocks = require "tokenweir.core.body.prefix_blocks"
local queue = require "tokenweir.core.queue"
local rings_of = require "tokenweir.core.sessions.rings"
local room = require "tokenweir.core.backend.room"
local running = require "tokenweir.core.prediction.running"
local skill = require "tokenweir.core.prediction.skill"
local stay = require "tokenweir.core.policy.stay"

local MODEL = "m"
local FULL, NOBODY = 0, -1
local CLASS_THRESHOLD = 50
local MOVE_MS = 600000
local MEASURE_MS = 100

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
  local line, waiters, tide = queue.new(), {}, 0
  local serving_at, measured_at = 0, 0
  local stats, reference = nil, {}
  local judged = skill.new()

  local memory, rings = cache_memory.new(), rings_of.new()
  local everyone = {}

  local gateway = {}

  --- Puts a snapshot into effect. The fleet's size stays.
  function gateway.apply(snapshot)
    snapshot = decoded(snapshot)
    assert(check.document(snapshot, "snapshot"))
    local last = -1
    fleet = assert(fleets.build(snapshot, nil, function()
      last = last + 1
      return last
    end))
    if not rows then
      size = fleet.size
      rows, loads = health.new(size), load.new(size)
      for i = 1, size do
        everyone[i] = i
        decoding[i], counts[i], synced[i] = {}, 0, 0
      end
    end
    pool = fleet.models[MODEL]
    cache_memory.follow(memory, fleet)
    view.fleet, view.load = fleet, loads
    view.settings = policies.settings(snapshot.thresholds)
    queue.configure(line, snapshot.queue)
    query.settings, query.health, query.by_turn = view.settings, rows, policy.by_turn
  end

  --- What the telemetry says of one server, between two snapshots that are built anew.
  function gateway.read(i, use, low, high)
    fleet.memory[i], fleet.low[i], fleet.high[i] = use, low, high
  end

  --- Sets thresholds that move (`z`).
  function gateway.threshold(name, value)
    view.settings[name] = value
  end

  --- Marks who is loaded; when telemetry came.
  function gateway.watch(now)
    view.now = now
    affinity.watch(memory, view, everyone, size, stay.use)
  end

  --- A request by its number; `mean` < 0: by the running figures. Its session: two halves of a hash, or nil; the most
  -- that its client wants of it, tokens, or nil.
  function gateway.request(id, prompt, mean, median, q90, sd, session, session_set, max_tokens)
    local r = {
      prompt = prompt, n = 1, draw = random(), session = session, session_set = session_set, pool = pool,
      max_tokens = max_tokens,
    }
    if mean < 0 or judged.left then
      running.predict(stats, max_tokens, CLASS_THRESHOLD, nil, r)
    else
      r.mean, r.median, r.q90, r.sd = mean, median, q90, sd
      r.class = median < CLASS_THRESHOLD and "low" or "high"
    end
    r.said_median, r.said_q90 = median, q90
    records[id] = r
  end

  --- The beginnings of its prompt: hashes, and where each of them ends, tokens.
  function gateway.blocks(id, hashes, ends, count)
    local r = records[id]
    r.blocks = prefix_blocks.new()
    for k = 1, count do
      prefix_blocks.add(r.blocks, 0ULL + hashes[k], ends[k])
    end
    if r.prompt > r.blocks.bytes then
      r.blocks.bytes = r.prompt
    end
  end

  --- The place on the ring of a session.
  function gateway.home(session, session_set)
    local r = { session = session, session_set = session_set, pool = pool }
    affinity.locate(memory, rings, fleet, r, 0, MOVE_MS)
    return r.home
  end

  --- Figures of the model's completions, as the sidecar publishes them.
  function gateway.stats(count, mean, median, spread)
    stats = { count = count, mean = mean, median = median, spread = spread }
  end

  -- A backend for a record, or nil and why not; never the place `apart`.
  local function choose(r, now, apart)
    query.now, view.now = now, now
    r.pool = pool
    affinity.locate(memory, rings, fleet, r, now, MOVE_MS)
    query.prompt, query.draw, query.stay, query.apart = r.prompt, r.draw, r.stay, apart
    local count, word, _, spare = eligible.filter(fleet, pool, query, candidates)
    if count == 0 then
      return nil, word
    end
    affinity.reckon(memory, view, r, candidates, count + (spare or 0))
    return policies.among(policy, view, r, candidates, count, spare)
  end

  local function take(r, index, now)
    affinity.served(memory, fleet, r, index, now, MOVE_MS, 0)
    load.reserve(loads[index], r)
    r.at = index
    health.probe(rows[index - 1], now)
  end

  function gateway.pick(id, now)
    local index, reason = choose(records[id], now)
    return index or (reason == "full" and FULL or NOBODY)
  end

  function gateway.take(id, index, now)
    take(records[id], index, now)
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

  --- It was served well: its server has prompt and output in its cache, and says how much it had before.
  function gateway.cached(id, output, cached, now)
    local r = records[id]
    affinity.ended(memory, r, fleet.place[r.at], r.prompt, output, cached, now)
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
      tide = tide + 1
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
    if r.said_median >= 0 then
      running.predict(stats, nil, CLASS_THRESHOLD, nil, reference)
      skill.judge(judged, output, r.said_median, r.said_q90, reference.median, reference.q90)
    end
  end

  local function release_rate(r)
    local own, sum = {}, 0
    demand.measure(r, own)
    for i = 1, size do
      if fleet.state[i] == "ready" then
        sum = sum + room.release_rate(loads, fleet, i, own)
      end
    end
    return sum
  end

  --- It waits, in the core's order; `flow` is whose it is, `most` how long it may wait, ms, `priority` its class.
  function gateway.enter(id, flow, now, most, priority)
    local r = records[id]
    local w = {
      id = id, request = r, priority = priority or "normal", long = r.class == "high", flow = flow,
      work = r.prompt + math.ceil(r.mean),
      reason = "full", until_ms = now + most,
    }
    waiters[id] = w
    queue.push(line, w, now, function()
      return release_rate(r)
    end)
  end

  --- One that waits and found no place when it came.
  -- @return whether it will probably not be served in its time: it is refused; and its wait as it is told, ms, or nil
  function gateway.doubt(id, now)
    local w = waiters[id]
    local _, ms, _, whole = queue.expect(line, w, now)
    local least = queue.at_least(line, w, whole)
    return least ~= nil and now + least > w.until_ms, ms
  end

  function gateway.leave(id, now)
    queue.remove(line, waiters[id], now)
    waiters[id] = nil
  end

  local function try(w, apart)
    local index, reason = choose(w.request, serving_at, apart)
    w.reason = reason
    if index then
      take(w.request, index, serving_at)
    end
    return index
  end

  local function hold(w, before)
    if w.reason ~= "full" then
      return nil
    end
    query.prompt, query.draw, query.apart = w.request.prompt, w.request.draw, nil
    local count = eligible.filter(fleet, pool, query, candidates)
    local index = room.soonest(view, candidates, count, w.request, before and before + 1)
    return index and index - 1
  end

  --- The next that waits and has a place now: its number and its server, which is taken; -1: none.
  function gateway.serve(now)
    serving_at, query.now, view.now = now, now, now
    if now - measured_at >= MEASURE_MS then
      measured_at = now
      queue.measure(line, now)
    end
    local w, index = queue.next(line, now, tide, try, hold)
    if not w then
      return -1, 0
    end
    waiters[w.id] = nil
    return w.id, index
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
