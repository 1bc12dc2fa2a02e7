--- The snapshot's backends as a struct of arrays, built once per snapshot and read on every request.
--
-- Indices run 1 .. fleet.size. Numbers are FFI doubles; what is not known is -1 for `memory`, `load` and
-- the ages, 0 for `capacity`, `concurrency`, `lets_in` and `context`. Strings and booleans are Lua arrays.
-- An index is valid for one fleet only; what must outlive a snapshot keeps the backend's `place`.
local ffi = require "ffi"
local contract = require "tokenweir.contract"
local step_time = require("tokenweir.core.backend.step_time").of
local traits = require("tokenweir.core.backend.engine").traits

local type, pairs, ipairs = type, pairs, ipairs
local exp, log = math.exp, math.log

local DOUBLES = ffi.typeof("double[?]")
local INTEGERS = ffi.typeof("int32_t[?]")
local MAX_BACKENDS = contract.numbers.max_backends

--- Member of a backend -> value where the snapshot does not tell; the array has the member's name.
local NUMBERS = {
  port = 0, weight = 1, admit = 1, memory = -1, memory_age_ms = -1, load = -1, load_age_ms = -1,
  capacity = 0, context = 0, concurrency = 0, low = 0, high = 0, scrape_failures = 0, progress_age_ms = -1,
  kv_bytes = 0, lets_in = 0,
}
local STRINGS = {
  id = "", host = "", sni = "", host_header = "", credential_group = "", wants_key = "", role = "active",
  state = "down", precision = "", engine = "",
}
local REST = { "preempts", "foreign_requests", "foreign_tokens", "usual_step", "relative_speed", "error_rate" }
local function names_of(defaults)
  local list = {}
  for name in pairs(defaults) do
    list[#list + 1] = name
  end
  return list
end

local NUMBER_NAMES, STRING_NAMES = names_of(NUMBERS), names_of(STRINGS)
local COSTS = { "prefill", "base", "per_sequence", "per_kv_token" }

-- Speeds are compared at a usual load: a batch of a conversation trace.
local USUAL_SEQUENCES = 16
local USUAL_KV = 16 * 1024

-- Backends after which a caller that asked for it gets its turn.
local TURN = 50

local _M = {}

-- Strings that were found printable, since a fleet's next snapshot holds nearly the same; forgotten when they are many.
local MOST_FOUND = 65536
local found, found_count = {}, 0

--- A printable string without control characters: it may end in a header or a log line.
local function printable(value)
  if found[value] then
    return true
  elseif value:find("[%c\127]") then
    return nil, ": control characters are not allowed"
  end
  if found_count >= MOST_FOUND then
    found, found_count = {}, 0
  end
  found[value], found_count = true, found_count + 1
  return true
end

local function quote(value)
  return "'" .. value:gsub("[%c\127]", "?") .. "'"
end

--- What the shapes of the contract do not say.
-- @return true; or nil and what is wrong, from the member on
local function check_backend(backend, seen)
  if not backend.id:find("^%w[%w._-]*$") then
    return nil, ".id: letters, digits, '.', '_' and '-' are wanted, got " .. quote(backend.id)
  end
  if seen[backend.id] then
    return nil, ".id: '" .. backend.id .. "' is there twice"
  end
  seen[backend.id] = true
  if not backend.host:find("^[%x.:]+$") then
    return nil, ".host: an IP address is wanted, got " .. quote(backend.host)
  end
  for k = 1, #STRING_NAMES do
    local name = STRING_NAMES[k]
    local value = backend[name]
    if type(value) == "string" then
      local ok, err = printable(value)
      if not ok then
        return nil, "." .. name .. err
      end
    end
  end
  for public, upstream in pairs(backend.models) do
    if public == "" or upstream == "" then
      return nil, ".models: a model's name must not be empty"
    end
    local ok, err = printable(public)
    if ok then
      ok, err = printable(upstream)
    end
    if not ok then
      return nil, ".models" .. err
    end
  end
  return true
end

--- Speed of each backend against the geometric mean of those that serve the same models.
local function fill_relative_speed(fleet)
  local sums, counts = DOUBLES(fleet.size + 1), DOUBLES(fleet.size + 1)
  for _, pool in pairs(fleet.models) do
    local sum = 0
    for k = 1, pool.size do
      sum = sum + log(fleet.usual_step[pool[k]])
    end
    for k = 1, pool.size do
      sums[pool[k]] = sums[pool[k]] + sum / pool.size
      counts[pool[k]] = counts[pool[k]] + 1
    end
  end
  for i = 1, fleet.size do
    local own = log(fleet.usual_step[i])
    fleet.relative_speed[i] = counts[i] > 0 and exp(sums[i] / counts[i] - own) or 1
  end
end

--- What holds for a model of which the snapshot says nothing.
_M.NO_CONTROL = {
  level = 0, refuse_new = false, drop_low = false, fallback = false, burst = false, precision = "",
}

local function control_of(snapshot, name)
  local told = type(snapshot.models) == "table" and snapshot.models[name]
  if type(told) ~= "table" then
    return _M.NO_CONTROL
  end
  local control = {}
  for member, default in pairs(_M.NO_CONTROL) do
    local value = told[member]
    control[member] = type(value) == type(default) and value or default
  end
  control.retry_after_ms = type(told.retry_after_ms) == "number" and told.retry_after_ms or nil
  return control
end

--- Backends by public model name. The order within a pool is the fleet's.
local function add_models(fleet, i, snapshot)
  for public, upstream in pairs(snapshot.backends[i].models) do
    local pool = fleet.models[public]
    if not pool then
      pool = { size = 0, upstream = {}, name = public, fallbacks = 0, control = control_of(snapshot, public) }
      fleet.models[public] = pool
    end
    if fleet.role[i] == "fallback" then
      pool.fallbacks = pool.fallbacks + 1
    end
    pool.size = pool.size + 1
    pool[pool.size] = i
    pool.upstream[pool.size] = upstream
  end
end

--- Lets a model be asked for by its aliases; a name that a backend serves itself wins over an alias.
local function add_aliases(fleet, settings)
  local models = type(settings) == "table" and settings.models
  for _, model in ipairs(type(models) == "table" and models or {}) do
    local pool = fleet.models[model.name]
    for _, alias in ipairs(type(model.aliases) == "table" and model.aliases or {}) do
      if pool and not fleet.models[alias] then
        fleet.models[alias] = pool
      end
    end
  end
end

--- Builds the fleet of a snapshot; refuses the whole document on any bad value.
-- @param snapshot table, the decoded `tw:snapshot`, checked already (`check.document`)
-- @param settings table or nil, the decoded `tw:settings` (aliases)
-- @param place_of function(id) -> its place in the shared memory (whole number >= 0) | nil, err
-- @param pause function or nil, called after every so many backends: it may yield
-- @return table: `size`; arrays by index of every member named in NUMBERS and STRINGS, the four coefficients of `cost`,
--   `tls`, `tls_verify`, `refused`, `late`, `place`, `preempts` (1: full, it loses time and no request),
--   `foreign_requests`, `foreign_tokens`, `usual_step` (ms of a
--   decode step at a usual load), `relative_speed` (1: as fast as its peers on average), `error_rate` (moving share of
--   requests not served, written by `eligible.lua`); `index` (id -> index); `at_place` (place -> index, 0: none);
--   `models[name]` -> {size, name = the public name, [k] = index, upstream = {[k] = the engine's name}, fallbacks = how
--   many of them are of that role, control = the snapshot's `models[name]`, or NO_CONTROL}; or nil, err
function _M.build(snapshot, settings, place_of, pause)
  local ok, err
  local backends = type(snapshot.backends) == "table" and snapshot.backends or {}
  local size = #backends
  local fleet = {
    size = size, models = {}, index = {}, place = INTEGERS(size + 1), at_place = INTEGERS(MAX_BACKENDS),
    tls = {}, tls_verify = {}, refused = {}, late = {},
  }
  for name in pairs(NUMBERS) do
    fleet[name] = DOUBLES(size + 1)
  end
  for name in pairs(STRINGS) do
    fleet[name] = {}
  end
  for _, name in ipairs(COSTS) do
    fleet[name] = DOUBLES(size + 1)
  end
  for _, name in ipairs(REST) do
    fleet[name] = DOUBLES(size + 1)
  end

  for i = 1, size do
    local backend = backends[i]
    ok, err = check_backend(backend, fleet.index)
    if not ok then
      return nil, "snapshot.backends[" .. i .. "]" .. err
    end
    local place
    place, err = place_of(backend.id)
    if not place then
      return nil, "snapshot.backends[" .. i .. "]: " .. (err or "no place left in the ledger")
    end
    fleet.place[i], fleet.index[backend.id] = place, i
    fleet.at_place[place] = i
    for k = 1, #NUMBER_NAMES do
      local name = NUMBER_NAMES[k]
      local value = backend[name]
      fleet[name][i] = type(value) == "number" and value or NUMBERS[name]
    end
    for k = 1, #STRING_NAMES do
      local name = STRING_NAMES[k]
      local value = backend[name]
      fleet[name][i] = type(value) == "string" and value or STRINGS[name]
    end
    for _, name in ipairs(COSTS) do
      fleet[name][i] = backend.cost[name]
    end
    fleet.preempts[i] = traits(fleet.engine[i]).preempts and 1 or 0
    fleet.usual_step[i] = step_time(fleet, i, USUAL_SEQUENCES, USUAL_KV)
    fleet.tls[i] = backend.tls == true
    fleet.tls_verify[i] = backend.tls_verify ~= false
    fleet.refused[i], fleet.late[i] = backend.refused == true, backend.late == true
    if type(backend.foreign) == "table" then
      local foreign = backend.foreign
      fleet.foreign_requests[i] = type(foreign.requests) == "number" and foreign.requests or 0
      fleet.foreign_tokens[i] = type(foreign.tokens) == "number" and foreign.tokens or 0
    end
    add_models(fleet, i, snapshot)
    if pause and i % TURN == 0 then
      pause()
    end
  end
  fill_relative_speed(fleet)
  add_aliases(fleet, settings)
  return fleet
end

return _M
