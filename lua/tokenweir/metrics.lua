--- Counters of the gateway. On the path of a request only tables and FFI arrays of this worker are touched; a timer
-- adds them to a shared dict, and so does a worker that exits. `exposition.lua` renders them.
-- Labels are bounded: models and backends come from the fleet, outcomes and status classes are few. A model that the
-- fleet does not know is not to be passed here (pass "").
local ffi = require "ffi"
local histogram_of = require "tokenweir.core.histogram"

local dict = ngx.shared.tokenweir_metrics
local bucket = histogram_of.bucket
local floor = math.floor
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
local requests, histograms = {}, {}
-- series_of[name][values of its labels]
local series_of = {}

local function new_histogram(name)
  -- buckets, then the sum
  return ffi.new("double[?]", last_bucket[name] + 2)
end

local function put(histogram, name, value)
  local upper, last = bounds[name], last_bucket[name]
  local k = bucket(upper, value)
  histogram[k] = histogram[k] + 1
  histogram[last + 1] = histogram[last + 1] + value
end

local function observe(model, name, ms)
  local of_model = histograms[model]
  if not of_model then
    of_model = { wait = new_histogram("wait"), ttft = new_histogram("ttft"), total = new_histogram("total") }
    histograms[model] = of_model
  end
  put(of_model[name], name, ms / 1000)
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

--- Counts a request that ended.
-- @param model string, public name from the fleet; "" if none
-- @param backend string, its id; "" if it never reached one
-- @param outcome string, of the contract's `Outcome`
-- @param status number, as sent to the client
-- @param prompt, output numbers of tokens, nil where not known
-- @param wait_ms, ttft_ms, total_ms numbers, nil where there is none
function _M.request(model, backend, outcome, status, prompt, output, wait_ms, ttft_ms, total_ms)
  local of_model = requests[model]
  if not of_model then
    of_model = {}
    requests[model] = of_model
  end
  local entry = of_model[backend]
  if not entry then
    entry = { prompt = 0, output = 0, outcomes = {} }
    of_model[backend] = entry
  end
  local classes = entry.outcomes[outcome]
  if not classes then
    classes = {}
    entry.outcomes[outcome] = classes
  end
  local class = floor(status / 100)
  classes[class] = (classes[class] or 0) + 1
  entry.prompt = entry.prompt + (prompt or 0)
  entry.output = entry.output + (output or 0)
  if wait_ms then
    observe(model, "wait", wait_ms)
  end
  if ttft_ms then
    observe(model, "ttft", ttft_ms)
  end
  if total_ms then
    observe(model, "total", total_ms)
  end
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

local function flush_requests()
  for model, backends in pairs(requests) do
    for backend, entry in pairs(backends) do
      local labels = SEPARATOR .. model .. SEPARATOR .. backend
      for outcome, classes in pairs(entry.outcomes) do
        for class, count in pairs(classes) do
          add("requests" .. labels .. SEPARATOR .. outcome .. SEPARATOR .. class, count)
          classes[class] = 0
        end
      end
      add("prompt_tokens" .. labels, entry.prompt)
      add("output_tokens" .. labels, entry.output)
      entry.prompt, entry.output = 0, 0
    end
  end
end

local function flush_histogram(name, series, histogram)
  for k = 0, last_bucket[name] + 1 do
    add("histogram" .. SEPARATOR .. name .. SEPARATOR .. series .. SEPARATOR .. k, histogram[k])
    histogram[k] = 0
  end
end

local function flush_histograms()
  for model, of_model in pairs(histograms) do
    for name, histogram in pairs(of_model) do
      flush_histogram(name, model, histogram)
    end
  end
  for name, by_series in pairs(series_of) do
    for series, histogram in pairs(by_series) do
      flush_histogram(name, series, histogram)
    end
  end
end

--- Adds what this worker counted to the shared dict.
function _M.flush()
  flush_requests()
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
