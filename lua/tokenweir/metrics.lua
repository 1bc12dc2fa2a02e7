--- Counters of the gateway. On the path of a request only tables and FFI arrays of this worker are touched; a timer
-- adds them to a shared dict, and so does a worker that exits. `exposition.lua` renders them.
-- Labels are bounded: models and backends come from the fleet, outcomes and status classes are few. A model that the
-- fleet does not know is not to be passed here (pass "").
local contract = require "tokenweir.contract"
local ffi = require "ffi"
local histogram_of = require "tokenweir.core.histogram"

local dict = ngx.shared.tokenweir_metrics
local bucket = histogram_of.bucket
local abs, floor, max, min = math.abs, math.floor, math.max, math.min
local pairs = pairs

--- Upper bounds of the histograms' buckets, seconds.
local BOUNDS = {
  wait = { 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60 },
  ttft = { 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60 },
  total = { 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600 },
  kv_transfer = { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10 },
  queue_wait = { 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300 },
  queue_wake = { 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 1 },
  queue_estimate_ratio = { 0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.3, 1.5, 2, 4 },
}

--- Separates the parts of a key; names with control characters never get into the fleet.
local SEPARATOR = "\t"
--- Separates the labels of a histogram's series.
local LABELS = "\31"

local _M = { BOUNDS = BOUNDS, SEPARATOR = SEPARATOR, LABELS = LABELS }

local bounds, last_bucket = {}, {}
for name, list in pairs(BOUNDS) do
  bounds[name], last_bucket[name] = histogram_of.bounds(list), #list
end

-- counters[name][label 1][label 2] = number not yet in the dict
local counters = {}
-- series_of[name][values of its labels]
local series_of = {}

-- What every request counts of its model stands in one array, in few lines of the processor's cache: sums first, then
-- the buckets of its histograms. by_model[model] = { sums = that array, backends = {} }
local by_model = {}
local WAIT_SUM, TTFT_SUM, TOTAL_SUM = 0, 1, 2
local PREDICTED, MEASURED, ERROR, RECKONED, CACHED = 3, 4, 5, 6, 7
local COUNTED = {
  [PREDICTED] = "predicted_output_tokens", [MEASURED] = "measured_output_tokens", [ERROR] = "prediction_error_tokens",
  [RECKONED] = "cached_prompt_tokens_reckoned", [CACHED] = "cached_prompt_tokens",
}
local WAIT = 8
local TTFT = WAIT + #BOUNDS.wait + 1
local TOTAL = TTFT + #BOUNDS.ttft + 1
local SUMS = TOTAL + #BOUNDS.total + 1
local HISTOGRAMS = {
  wait = { buckets = WAIT, sum = WAIT_SUM }, ttft = { buckets = TTFT, sum = TTFT_SUM },
  total = { buckets = TOTAL, sum = TOTAL_SUM },
}
-- Constants to LuaJIT, as `bounds.wait` is not.
local function pointer(name)
  return ffi.cast("const double *", bounds[name])
end
local wait_bounds, ttft_bounds, total_bounds = pointer "wait", pointer "ttft", pointer "total"

-- The same of one backend: backends[backend] = tokens, then requests by outcome and class of their status.
local PROMPT, OUTPUT, FIRST_OUTCOME, CLASSES = 0, 1, 2, 10
local OUTCOMES = contract.shapes.completion.members.outcome.enum
local outcome_at = {}
for k = 1, #OUTCOMES do
  outcome_at[OUTCOMES[k]] = FIRST_OUTCOME + CLASSES * (k - 1)
end

local array = ffi.typeof("double[?]")

local function model_of(name)
  local of_model = by_model[name]
  if not of_model then
    of_model = { sums = array(SUMS), backends = {} }
    by_model[name] = of_model
  end
  return of_model
end

local function new_histogram(name)
  -- buckets, then the sum
  return array(last_bucket[name] + 2)
end

local function put(histogram, name, value)
  local upper, last = bounds[name], last_bucket[name]
  local k = bucket(upper, value)
  histogram[k] = histogram[k] + 1
  histogram[last + 1] = histogram[last + 1] + value
end

--- Counts a value of a histogram that requests do not count by themselves.
-- @param name string, of BOUNDS; @param first, second its labels' values, as in `exposition.HISTOGRAMS`
function _M.observe(name, value, first, second)
  local series = second and first .. LABELS .. second or first
  local by_series = series_of[name]
  if not by_series then
    by_series = {}
    series_of[name] = by_series
  end
  local histogram = by_series[series]
  if not histogram then
    histogram = new_histogram(name)
    by_series[series] = histogram
  end
  put(histogram, name, value)
end

local function observe(sums, sum, buckets, upper, ms)
  local value = ms / 1000
  local k = buckets + bucket(upper, value)
  sums[k], sums[sum] = sums[k] + 1, sums[sum] + value
end

--- Counts a request that ended.
-- @param model string, public name from the fleet; "" if none
-- @param backend string, its id; "" if it never reached one
-- @param outcome string, of the contract's `Outcome`
-- @param status number, as sent to the client
-- @param prompt, output numbers of tokens, nil where not known
-- @param wait_ms, ttft_ms, total_ms numbers, nil where there is none
function _M.request(model, backend, outcome, status, prompt, output, wait_ms, ttft_ms, total_ms)
  local of_model = model_of(model)
  local entry = of_model.backends[backend]
  if not entry then
    entry = array(FIRST_OUTCOME + CLASSES * #OUTCOMES)
    of_model.backends[backend] = entry
  end
  local at = outcome_at[outcome] + max(0, min(floor(status / 100), CLASSES - 1))
  entry[at] = entry[at] + 1
  entry[PROMPT], entry[OUTPUT] = entry[PROMPT] + (prompt or 0), entry[OUTPUT] + (output or 0)
  local sums = of_model.sums
  if wait_ms then
    observe(sums, WAIT_SUM, WAIT, wait_bounds, wait_ms)
  end
  if ttft_ms then
    observe(sums, TTFT_SUM, TTFT, ttft_bounds, ttft_ms)
  end
  if total_ms then
    observe(sums, TOTAL_SUM, TOTAL, total_bounds, total_ms)
  end
end

--- Counts an output that had been predicted, both in tokens.
function _M.predicted(model, predicted, measured)
  local sums = model_of(model).sums
  sums[PREDICTED], sums[MEASURED] = sums[PREDICTED] + predicted, sums[MEASURED] + measured
  sums[ERROR] = sums[ERROR] + abs(predicted - measured)
end

--- Counts what the cache of a backend was reckoned to have of a prompt, in tokens, and what it had, as its engine says;
-- nil where that does not.
function _M.cached(model, reckoned, cached)
  local sums = model_of(model).sums
  sums[RECKONED], sums[CACHED] = sums[RECKONED] + reckoned, sums[CACHED] + (cached or 0)
end

--- Adds to a counter of `exposition.COUNTERS`.
-- @param name string
-- @param first, second values of its labels, in order; nil if it has none
function _M.add(name, amount, first, second)
  local by_first = counters[name]
  if not by_first then
    by_first = {}
    counters[name] = by_first
  end
  first, second = first or "", second or ""
  local by_second = by_first[first]
  if not by_second then
    by_second = {}
    by_first[first] = by_second
  end
  by_second[second] = (by_second[second] or 0) + amount
end

--- Counts an ejection of a backend.
function _M.ejection(backend, why)
  _M.add("ejections", 1, backend, why)
end

-- `incr` with a start value would evict other counters from a full dict.
local function add(key, amount)
  if amount ~= 0 and not dict:incr(key, amount) and not dict:safe_add(key, amount) then
    dict:incr(key, amount)
  end
end

local function flush_backend(model, backend, entry)
  local labels = SEPARATOR .. model .. SEPARATOR .. backend
  for k = 1, #OUTCOMES do
    for class = 0, CLASSES - 1 do
      local at = outcome_at[OUTCOMES[k]] + class
      if entry[at] > 0 then
        add("requests" .. labels .. SEPARATOR .. OUTCOMES[k] .. SEPARATOR .. class, entry[at])
        entry[at] = 0
      end
    end
  end
  add("prompt_tokens" .. labels, entry[PROMPT])
  add("output_tokens" .. labels, entry[OUTPUT])
  entry[PROMPT], entry[OUTPUT] = 0, 0
end

local function add_to_histogram(name, series, k, amount)
  if amount ~= 0 then
    add("histogram" .. SEPARATOR .. name .. SEPARATOR .. series .. SEPARATOR .. k, amount)
  end
end

local function flush_model(model, sums)
  for name, at in pairs(HISTOGRAMS) do
    local last = last_bucket[name]
    for k = 0, last do
      add_to_histogram(name, model, k, sums[at.buckets + k])
    end
    add_to_histogram(name, model, last + 1, sums[at.sum])
  end
  for at, name in pairs(COUNTED) do
    add("counter" .. SEPARATOR .. name .. SEPARATOR .. model .. SEPARATOR, sums[at])
  end
  ffi.fill(sums, ffi.sizeof(sums))
end

local function flush_models()
  for model, of_model in pairs(by_model) do
    flush_model(model, of_model.sums)
    for backend, entry in pairs(of_model.backends) do
      flush_backend(model, backend, entry)
    end
  end
end

local function flush_histograms()
  for name, by_series in pairs(series_of) do
    for series, histogram in pairs(by_series) do
      for k = 0, last_bucket[name] + 1 do
        add_to_histogram(name, series, k, histogram[k])
        histogram[k] = 0
      end
    end
  end
end

--- Adds what this worker counted to the shared dict.
function _M.flush()
  flush_models()
  flush_histograms()
  for name, by_first in pairs(counters) do
    for first, by_second in pairs(by_first) do
      for second, amount in pairs(by_second) do
        add("counter" .. SEPARATOR .. name .. SEPARATOR .. first .. SEPARATOR .. second, amount)
        by_second[second] = 0
      end
    end
  end
end

--- Every counter of the gateway, of all its workers.
-- @return list of { parts of the key ..., value = number }
function _M.all()
  local keys, list = dict:get_keys(0), {}
  for k = 1, #keys do
    local parts, from = {}, 1
    local key = keys[k]
    while true do
      local at = key:find(SEPARATOR, from, true)
      parts[#parts + 1] = key:sub(from, (at or 0) - 1)
      if not at then
        break
      end
      from = at + 1
    end
    parts.value = dict:get(key)
    list[#list + 1] = parts
  end
  return list
end

return _M
