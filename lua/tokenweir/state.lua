--- What this worker knows by now: the applied documents, how old the snapshot is, what may be believed.
--
--   local known = state.current(now)
--   if not known.settings or not known.fleet then refuse with 503 end
--
-- Decoding happens in timers (`refresh`), never on the path of a request. Waiting requests of a worker that drains
-- call `refresh` too, because timers stop at a reload.
local cjson = require "cjson.safe"
local contract = require "tokenweir.contract"
local defaults = require "tokenweir.core.documents.defaults"
local documents = require "tokenweir.documents"
local fleet_builder = require "tokenweir.core.backend.fleet"
local long_json = require "tokenweir.core.json.long"
local numbering = require "tokenweir.numbering"
local predictor = require "tokenweir.core.prediction.predictor"
local region = require "tokenweir.region"

local version_of = documents.version
local NO_CONTROL = fleet_builder.NO_CONTROL
local error, ipairs, pairs, pcall = error, ipairs, pairs, pcall
local huge, max = math.huge, math.max

local STALE_MS = contract.numbers.snapshot_stale_ms
local REFRESH_MS = 20
local TOUCH_MS = 10000

local _M = {}

local applied = { snapshot = 0, settings = 0, stats = 0, histories = 0, predictor_model = 0 }
local listeners = {}
local snapshot, first_seen, from_disk
local refreshed_at, touched_at = 0, 0
local applying = false      -- another turn of this worker is in the middle of it

local placeless = 0         -- names of models that were left out the last time

local known = {
  fleet = nil, settings = nil, stats = nil, histories = nil, predictor = nil, thresholds = nil, queue = nil,
  policy = "round_robin", shadow = nil,
  level = 0, burst = false, burst_max_tokens = 256, predictor_version = "",
  fence = 0, sequence = 0, snapshot_age_ms = huge, stale = true, generation = 0,
}

local FULL = numbering.full(region.MODELS)

-- Models beyond the places that there are can be asked for by nobody: an engine that lists hundreds (adapters) must not
-- keep this gateway from following the fleet. Those that are configured get theirs first.
local function give_places(fleet, settings)
  local models, left_out = fleet.models, {}
  local full, err = false
  for _, model in ipairs(settings and settings.models or {}) do
    local pool = models[model.name]
    if pool and not pool.place then
      pool.place = numbering.model(pool.name)
    end
  end
  for _, pool in pairs(models) do
    if not pool.place and not left_out[pool] then
      -- Looking for a free place takes long; where one was not found there is none for the next either.
      pool.place, err = numbering.model(pool.name, full)
      full = full or err == FULL
      if not pool.place and not full then
        return nil, "model " .. pool.name .. ": " .. err
      end
      left_out[pool] = not pool.place or nil
    end
  end
  if not full then
    placeless = 0
    return true
  end
  local count = 0
  for name, pool in pairs(models) do
    if left_out[pool] then
      models[name] = nil
      count = count + 1
    end
  end
  if count ~= placeless then
    placeless = count
    ngx.log(ngx.ERR, "tokenweir: ", count, " models cannot be served: a gateway knows ", region.MODELS,
      " at most; name those that are wanted in `models` of the backends that list so many")
  end
  return true
end

--- A fleet of a snapshot, with the places of its models in the shared region (`pool.place`).
local function build_fleet(document, settings, pause)
  local fleet, err = fleet_builder.build(document, settings, numbering.backend, pause)
  if not fleet then
    return nil, err
  end
  local ok
  ok, err = give_places(fleet, settings)
  return ok and fleet, err
end

-- The fleet of the last trial, which this worker applies next: { settings, document, fleet }.
local tried

--- The last check of a document before it is published to the workers.
-- @return function for `documents.admit`, or nil
function _M.trial(name)
  if name == "snapshot" then
    return function(document, pause)
      local filled, settings = defaults.fill(document, name, "backends"), known.settings
      local fleet, err = build_fleet(filled, settings, pause)
      tried = fleet and { settings = settings, document = filled, fleet = fleet }
      return fleet and true, err
    end
  elseif name == "predictor_model" then
    return function(document)
      local model, reason, err = predictor.open(document, cjson.decode)
      return model and true, err, reason
    end
  end
end

local function use_fleet(fleet)
  known.fleet = fleet
  known.generation = known.generation + 1
end

-- All at once, after the last pause: nobody may see a part of it.
local function apply_snapshot(document, meta, pause, built)
  local filled, fleet = document, built
  if not fleet then
    local err
    filled = defaults.fill(document, "snapshot", "backends")
    fleet, err = build_fleet(filled, known.settings, pause)
    if not fleet then
      return nil, err
    end
  end
  snapshot = filled
  use_fleet(fleet)
  first_seen, from_disk = meta.seen, meta.from_disk
  known.fence, known.sequence = snapshot.fence, snapshot.sequence
  known.policy, known.shadow = snapshot.policy, snapshot.shadow
  known.thresholds, known.queue = snapshot.thresholds, snapshot.queue
  known.predictor_version = snapshot.predictor_version
  known.burst_max_tokens = snapshot.burst_max_tokens
  return true
end

local function apply_settings(document)
  known.settings = defaults.fill(document, "settings")
  if not snapshot then
    return true
  end
  -- Aliases are part of the fleet.
  local fleet, err = build_fleet(snapshot, known.settings)
  if not fleet then
    return nil, err
  end
  use_fleet(fleet)
  return true
end

local function apply_stats(document)
  known.stats = defaults.fill(document, "stats")
  return true
end

local function apply_histories(document)
  known.histories = document
  return true
end

local function apply_predictor(document)
  local model, _, err = predictor.open(document, cjson.decode)
  known.predictor = model or known.predictor
  return model and true, err
end

local APPLY = {
  snapshot = apply_snapshot, settings = apply_settings, stats = apply_stats, histories = apply_histories,
  predictor_model = apply_predictor,
}

-- The trial, if it was of the snapshot that is published now.
local function take_trial(meta)
  local trial = tried
  tried = nil
  local same = trial and trial.document.fence == meta.fence and trial.document.sequence == meta.number
  return same and trial.settings == known.settings and trial
end

local function apply(name, version, pause)
  local meta = documents.meta(name)
  if not meta then
    return
  end
  local ok, err
  local trial = name == "snapshot" and take_trial(meta)
  local text = not trial and documents.text(name)
  if not trial and not text then
    return
  end
  applied[name] = version
  if trial then
    ok, err = apply_snapshot(trial.document, meta, nil, trial.fleet)
  else
    local document
    document, err = long_json.decode(text, cjson.decode, pause)
    ok = document and true
    if ok then
      if pause then
        pause()
      end
      ok, err = APPLY[name](document, meta, pause)
    end
  end
  if not ok then
    documents.refuse(name, "apply")
    ngx.log(ngx.ERR, "tokenweir: a worker keeps its old ", name, ": ", err)
    return
  end
  for k = 1, #listeners do
    listeners[k](name, known)
  end
end

--- Applies what changed since the last time. Cheap when nothing did.
-- @param at_once boolean, even if the last time was a moment ago
-- @param pause function or nil, called now and then while a long document is applied: it may yield, in a timer
function _M.refresh(now, at_once, pause)
  if applying or not at_once and now - refreshed_at < REFRESH_MS then
    return
  end
  refreshed_at = now
  local names = documents.NAMES
  for k = 1, #names do
    local name = names[k]
    local version = version_of(name)
    if version ~= applied[name] then
      applying = true
      local ok, err = pcall(apply, name, version, pause)
      applying = false
      if not ok then
        error(err, 0)
      end
    end
  end
  if known.fleet and now - touched_at > TOUCH_MS then
    touched_at = now
    numbering.touch_backends(known.fleet.place, known.fleet.size, now)
    for _, pool in pairs(known.fleet.models) do
      numbering.touch_model(pool.place, now)
    end
  end
end

--- What may be believed at this moment.
-- @param now ms of the monotonic clock
-- @return table, reused: `fleet` and `settings` (nil until seen), `stats`, `histories` and `predictor` (nil until
--   seen), `policy` (as published: `core/policy.pick` fades it by `stale`), `shadow`, `level` and `burst` (0 and false
--   when stale; what holds for a model tells `control`), `burst_max_tokens`, `thresholds`, `queue`,
--   `predictor_version`, `fence`, `sequence`, `snapshot_age_ms` (infinite if it was only read from disk), `stale`,
--   `generation` (grows with every new fleet)
function _M.current(now)
  if not snapshot or not known.settings then
    -- Only until the first of them has come: another worker may have fetched it, and the timer is not due yet.
    _M.refresh(now, true)
    if not snapshot then
      return known
    end
  end
  -- A caller's `now` may be from before it yielded, and the snapshot from after.
  local age = from_disk and huge or max(0, now - first_seen)
  local stale = age > STALE_MS
  known.snapshot_age_ms, known.stale = age, stale
  if stale then
    known.level, known.burst = 0, false
  else
    known.level, known.burst = snapshot.level, snapshot.burst
  end
  return known
end

--- The settings alone, for a request that has come so far that there are some.
function _M.settings()
  return known.settings
end

--- What the snapshot says of a model beyond its backends; nothing holds by a stale one.
-- @param pool of `known.fleet.models`
-- @return table, see `core/backend/fleet.lua`
function _M.control(of, pool)
  return of.stale and NO_CONTROL or pool.control
end

--- Calls `listener(name, known)` whenever this worker has applied a document.
function _M.on_change(listener)
  listeners[#listeners + 1] = listener
end

return _M
