--- The log phase: frees what a request held, whatever became of it, and records how it went.
local access_json = require "tokenweir.core.access_json"
local affinity = require "tokenweir.affinity"
local body = require "tokenweir.body"
local body_rate = require "tokenweir.body_rate"
local clock = require "tokenweir.clock"
local completion = require "tokenweir.completion"
local deadline = require "tokenweir.deadline"
local json_string = require "tokenweir.core.json.string"
local ledger = require "tokenweir.ledger"
local limits = require "tokenweir.limits"
local metrics = require "tokenweir.metrics"
local outcome_of = require "tokenweir.outcome"
local passive_health = require "tokenweir.passive_health"
local prediction = require "tokenweir.prediction"
local request_context = require "tokenweir.request_context"
local sse = require "tokenweir.core.answer.sse"
local upstream_log = require "tokenweir.upstream_log"
local usage = require "tokenweir.core.answer.usage"
local variables = require "tokenweir.variable"
local waiting = require "tokenweir.waiting"

local ngx = ngx
local take_away_context = require("tokenweir.current_context").take_away
local conclude = outcome_of.conclude
local count_request = metrics.request
local forget_deadline = deadline.forget
local give_context = request_context.give
local learn = prediction.learn
local leave, wake, will_wake = waiting.leave, waiting.wake, waiting.will_wake
local note_caches = affinity.ended
local release = ledger.release
local settle = limits.settle
local tokens_of, write_record = completion.tokens, completion.write
local encode, tell = json_string.encode, access_json.write
local sub = string.sub
local variable, bytes_of, set_bytes = variables.get, variables.bytes, variables.set_bytes
local status_of = variables.status
local now_ms = clock.ms

--- A reservation whose client has gone is kept for at most this much longer than the engine probably needs.
local MARGIN = 1.5
--- What the log says of a request that was given up because its body came too slowly; nginx has it as a malformed one.
local SLOW = 408

local line = require("string.buffer").new()
-- Where the id of the request at hand stands.
local id = require("ffi").new("const uint8_t *[1]")

local _M = {}

-- Whether the engine may go on with a request whose client has gone.
local function runs_on(r)
  return not r.stream and r.target.runs_on and r.kind ~= "embeddings" and upstream_log.sent() > 0
end

local function free(r, outcome, now)
  will_wake()
  if outcome == "client_gone" and runs_on(r) then
    local target = r.target
    local needed = target.prefill * r.prompt + target.step * (r.q90 or r.mean or 0)
    ledger.linger(r, r.reserved_at + MARGIN * needed, now)
  else
    release(r)
  end
  wake(now)
end

-- Finds the id; returns its size.
local function find_id()
  local size
  id[0], size = bytes_of("tw_id")
  return size
end

-- What the access log tells, see nginx.conf.
local function write_line(r, id_size, outcome, output, prompt)
  line:reset()
  tell(line, r, id, id_size, outcome, output, prompt)
  set_bytes("tw_record", line:ref())
  if not r.kind or r.kind == "other" then
    ngx.var.tw_escaped_path = sub(encode(variable("uri")), 2, -2)
  end
end

-- A request that never had a backend.
local function unserved(r, status, now)
  local outcome = status == 499 and "client_gone" or "refused"
  count_request(r.model or "", "", outcome, status, nil, nil, nil, nil, now - r.arrived)
  if r.limited then
    settle(r, 0)
  end
  write_line(r, find_id(), outcome)
end

-- Reads what an answer told that broke off; whole ones the body filter has read.
local function finish_early(r)
  if r.sse then
    sse.finish(r.sse)
  elseif r.usage then
    usage.finish(r.usage)
  end
end

-- Tokens that count against the limit of the request's key. A client that leaves before its answer begins has had the
-- engine work all the same, for nobody knows how long: what it was reckoned to need stays counted.
local function charge(r, outcome, prompt, output)
  if r.header then
    return (prompt or r.prompt) + (output or 0)
  end
  return outcome == "client_gone" and upstream_log.sent() > 0 and r.limited.charged or 0
end

local function served(r, status, now)
  if r.fallback then
    metrics.add("degraded", 1, r.model, "fallback-model")
  end
  local outcome = conclude(r, status, now)
  if r.engine_error == "out_of_memory" then
    passive_health.exhausted(r.place, now)
  end
  free(r, outcome, now)
  if not r.ended then
    finish_early(r)
  end
  local output, source, prompt, cached = tokens_of(r)
  local first = r.first_token or r.first_byte
  count_request(r.model, r.backend, outcome, status, prompt, output, r.wait_ms, first and first - r.arrived,
    now - r.arrived)
  if r.limited then
    settle(r, charge(r, outcome, prompt, output))
  end
  learn(r, outcome, output, prompt, now)
  if r.usage and r.usage.id then
    affinity.made(r, r.usage.id, now)
  end
  note_caches(r, outcome, prompt, output, cached, now)
  local id_size = find_id()
  write_record(r, id, id_size, status, outcome, output, source, prompt, cached, now)
  write_line(r, id_size, outcome, output, prompt)
end

--- Ends a request.
function _M.run()
  local r = take_away_context()
  if not r.taken then
    -- nginx refused it before the access phase
    return write_line(r, find_id(), "")
  end
  if r.body_at then
    body_rate.forget(r)
    if r.slow then
      ngx.status = SLOW
    end
  end
  local status, now = status_of(), now_ms()
  leave(r)
  if r.deadline then
    forget_deadline(r)
  end
  if r.body_file then
    body.discard(r)
  end
  if r.backend then
    served(r, status, now)
  else
    unserved(r, status, now)
  end
  give_context(r)
end

return _M
