--- What is written down of requests that have ended: counted, learned from, recorded. For several at once: the first of
-- them brings all this code into the processor's caches, and the others find it there.
local completion = require "tokenweir.completion"
local ffi = require "ffi"
local metrics = require "tokenweir.metrics"
local prediction = require "tokenweir.prediction"
local request_context = require "tokenweir.request_context"

local copy = ffi.copy
local count_request, give, learn = metrics.request, request_context.give, prediction.learn
local exiting, now_wall = ngx.worker.exiting, ngx.now
local tokens_of, write = completion.tokens, completion.write

--- So many make a batch; their records are still in the cache, too.
local BATCH = 16
--- Who comes so much later finds what was learned: a client that goes on, an hour with few requests.
local LATE_MS = 2
--- The longest id, see nginx.conf.
local ID_BYTES = 64

local ended, outcomes, count = {}, {}, 0
local ids, id_sizes = ffi.new("uint8_t[?]", BATCH * ID_BYTES), ffi.new("int32_t[?]", BATCH)
local status_of, ended_at, ended_wall = ffi.new("double[?]", BATCH), ffi.new("double[?]", BATCH),
  ffi.new("double[?]", BATCH)

local _M = {}

local function write_down(r, k)
  local outcome, status, now = outcomes[k + 1], status_of[k], ended_at[k]
  local output, source, prompt, cached = tokens_of(r)
  local first = r.first_token or r.first_byte
  count_request(r.model, r.backend, outcome, status, prompt, output, r.wait_ms, first and first - r.arrived,
    now - r.arrived)
  learn(r, outcome, output, prompt, now)
  write(r, ids + k * ID_BYTES, id_sizes[k], status, outcome, output, source, prompt, cached, now, ended_wall[k])
  give(r)
end

--- Writes down what waits; from timers, and where a worker exits.
function _M.work_off()
  local n = count
  count = 0
  for k = 0, n - 1 do
    write_down(ended[k + 1], k)
  end
end

-- Compiled, this would be one long trace, and LuaJIT tries again and again to add one as long for each way in which
-- requests differ: a worker then spends milliseconds on a request. So it is interpreted, and what it calls is compiled
-- part by part.
jit.off(write_down)
jit.off(_M.work_off)

--- The same where it has waited for long; before a request is judged by what others told.
function _M.catch_up(now)
  if count > 0 and now - ended_at[count - 1] > LATE_MS then
    return _M.work_off()
  end
end

--- Takes a request that had a backend and has ended; nobody else may use its context any more.
-- @param id, id_size bytes of its id; @param status as sent to the client; @param outcome string, of the contract's
--   `Outcome`
function _M.take(r, id, id_size, status, outcome, now)
  local k = count
  ended[k + 1], outcomes[k + 1] = r, outcome
  copy(ids + k * ID_BYTES, id, id_size)
  id_sizes[k], status_of[k], ended_at[k], ended_wall[k] = id_size, status, now, now_wall()
  r.taken = false
  count = k + 1
  -- Timers have stopped in a worker that drains.
  if count == BATCH or exiting() then
    return _M.work_off()
  end
end

return _M
