-- Times what the gateway does of a request's features and prediction, on the thread's own processor clock: other
-- processes of a shared machine do not count.
local ffi = require "ffi"
local estimator = require "tokenweir.core.prediction.estimator"
local features = require "tokenweir.core.prediction.features"
local identity = require "tokenweir.core.identity"
local request = require "tokenweir.core.body.request"

ffi.cdef [[
typedef struct { long sec; long nsec; } tw_bench_time;
int tw_bench_clock(int clock, tw_bench_time *at) __asm__("clock_gettime");
]]

-- As in the gateway.
require "tokenweir.core.compiler"

local C = ffi.C
local THREAD_CPU = 3
local at = ffi.new("tw_bench_time")

local function microseconds()
  C.tw_bench_clock(THREAD_CPU, at)
  return tonumber(at.sec) * 1e6 + tonumber(at.nsec) / 1e3
end

local state = estimator.new(1024)
local parsed = {}
local asked = { model = "llm", threshold = 50, key_id = identity.string("application"), session_id = 0 }
local parsing, evaluating, count

local _M = {}

--- Begins a series.
function _M.begin()
  parsing, evaluating, count = {}, {}, 0
end

--- One request from its body to its prediction, and what came of it. Called once a request, as nginx does.
function _M.one(model, body)
  local first = microseconds()
  assert(request.parse("chat", body, parsed))
  local second = microseconds()
  features.read(parsed, estimator.x)
  asked.system_id, asked.prompt_id, asked.max_tokens = parsed.system_id, parsed.prompt_id, parsed.max_tokens
  estimator.predict(state, model, asked)
  local third = microseconds()
  estimator.learn(state, model, asked, 50 + count % 400, "stop", count)
  count = count + 1
  parsing[count], evaluating[count] = second - first, third - second
end

--- Microseconds of the second half of the series (the first is for compilation): parsing, then features and prediction.
function _M.finish()
  local half = math.floor(count / 2)
  local first, second = {}, {}
  for k = half + 1, count do
    first[#first + 1], second[#second + 1] = parsing[k], evaluating[k]
  end
  return first, second
end

--- What two readings of the clock cost, by which all figures are too large.
function _M.clock_cost()
  local least = math.huge
  for _ = 1, 1000 do
    local first = microseconds()
    least = math.min(least, microseconds() - first)
  end
  return least
end

return _M
