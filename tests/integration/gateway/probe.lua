-- Endpoints that use the gateway's shared state directly, so that tests need no engine.
local cjson = require "cjson.safe"
local clock = require "tokenweir.clock"
local ffi = require "ffi"
local documents = require "tokenweir.documents"
local events = require "tokenweir.events"
local lease = require "tokenweir.lease"
local ledger = require "tokenweir.ledger"
local load = require "tokenweir.core.backend.load"
local metrics = require "tokenweir.metrics"
local moves = require "tokenweir.moves"
local passive_health = require "tokenweir.passive_health"
local peers = require "tokenweir.peers"
local poller_lock = require "tokenweir.poller_lock"
local quarantine = require "tokenweir.quarantine"
local queue_lines = require "tokenweir.queue_lines"
local init_worker = require "tokenweir.init_worker"
local region = require "tokenweir.region"
local scoreboard = require "tokenweir.scoreboard"
local state = require "tokenweir.state"

ffi.cdef "int kill(int pid, int signal);"

local KILL = 9
local RECORD = '"id":"%s-%d","model":"llama","backend":"gpu-a","kind":"chat","outcome":"ok","total_ms":12.5'

local _M = {}

local function answer(value)
  ngx.header["Content-Type"] = "application/json"
  ngx.say(cjson.encode(value))
end

local function known_and_index()
  local known = state.current(clock.ms())
  local index = known.fleet and known.fleet.index[ngx.var.arg_backend or "gpu-a"]
  if not index then
    ngx.exit(503)
  end
  return known, index
end

local held = ngx.shared.test_held

--- Lets all requests go that are held at this moment.
function _M.let_go()
  held:incr("round", 1, 0)
  ngx.say("done")
end

--- Holds a reservation for `ms` or until `let_go`, streaming a byte every 50 ms if `stream` is set.
function _M.hold()
  local known, index = known_and_index()
  local now = clock.ms()
  local r = {
    n = 1, prompt = tonumber(ngx.var.arg_prompt or 100), mean = 50, sd = 10, stream = ngx.var.arg_stream ~= nil,
  }
  ngx.ctx.r = r
  ledger.reserve(r, known.fleet, index, now)
  scoreboard.arrive(known.fleet.models.llama.place)
  local until_ms, tokens = now + tonumber(ngx.var.arg_ms or 100), 0
  local round = held:get("round")
  while clock.ms() < until_ms and held:get("round") == round do
    ngx.sleep(0.05)
    if r.stream then
      tokens = tokens + 1
      ledger.first_token(r)
      ledger.progress(r, tokens)
      ngx.print(".")
      ngx.flush(true)
    end
    init_worker.housekeep(clock.ms())
  end
  ngx.say("done")
end

local function wait_for(name, count)
  while (held:get(name) or 0) < count do
    ngx.sleep(0.005)
  end
end

--- One of `count` requests that all look at a backend before the first of them claims it, one after the other.
function _M.claim()
  local known, index = known_and_index()
  local rank, count = tonumber(ngx.var.arg_rank), tonumber(ngx.var.arg_count)
  ledger.view(known, { index }, 1, clock.ms())
  held:incr("looked", 1, 0)
  wait_for("looked", count)
  wait_for("claimed", rank)
  local r = { n = 1, prompt = tonumber(ngx.var.arg_prompt), mean = 50, sd = 10, stream = true }
  local got = ledger.claim(r, known.fleet, index, clock.ms())
  held:incr("claimed", 1, 0)
  wait_for("claimed", count)
  ledger.release(r)
  answer(got)
end

local function emit(number)
  local to = events.begin()
  if to then
    to:put(RECORD:format(ngx.var.request_id, number))
    events.finish()
  end
end

function _M.hold_log()
  local r = ngx.ctx.r
  if not r then
    return
  end
  if ngx.var.arg_linger then
    ledger.linger(r, clock.ms() + tonumber(ngx.var.arg_linger), clock.ms())
  else
    ledger.release(r)
  end
  emit(1)
  metrics.request("llama", "gpu-a", "ok", 200, 100, 50, 0, 10, 100)
end

--- What the policy would see, by backend.
function _M.view()
  local known = state.current(clock.ms())
  local list, candidates = {}, {}
  for i = 1, known.fleet and known.fleet.size or 0 do
    candidates[i] = i
  end
  if known.fleet then
    local view = ledger.view(known, candidates, #candidates, clock.ms())
    for i = 1, #candidates do
      view.fill_buckets(i)
      local sum, in_buckets = view.load[i], 0
      for b = 0, 12 do
        in_buckets = in_buckets + sum.bucket_n[b]
      end
      list[known.fleet.id[i]] = {
        n = sum.n, held = sum.held, remaining = sum.remaining, variance = sum.variance, prefill = sum.prefill,
        flowing = sum.flowing, in_buckets = in_buckets,
      }
    end
  end
  answer(list)
end

--- Own sums over the workers, without foreign load and other gateways.
function _M.own()
  local known = state.current(clock.ms())
  local row, list = load.new(0), {}
  for i = 1, known.fleet and known.fleet.size or 0 do
    local sum = ledger.sum(row[0], known.fleet.place[i])
    local total = 0
    local doubles = require("ffi").cast("double *", sum)
    for k = 0, load.DOUBLES - 1 do
      total = total + math.abs(doubles[k])
    end
    list[known.fleet.id[i]] = { n = sum.n, held = sum.held, flowing = sum.flowing, everything = total }
  end
  answer(list)
end

function _M.state()
  local known = state.current(clock.ms())
  answer {
    pid = ngx.worker.pid(), fence = known.fence, sequence = known.sequence, stale = known.stale,
    age_ms = known.snapshot_age_ms == math.huge and -1 or known.snapshot_age_ms, policy = known.policy,
    level = known.level, burst = known.burst, settings = known.settings, backends = known.fleet and known.fleet.id,
  }
end

--- What becomes of a document that this worker is offered.
function _M.offer()
  ngx.req.read_body()
  local name, text = ngx.var.arg_name, ngx.req.get_body_data()
  local new, reason = documents.admit(name, text, "redis", state.trial(name))
  answer { new = new, reason = reason, pid = ngx.worker.pid() }
end

--- The number of the document that is published to the workers.
function _M.published()
  answer { number = documents.meta(ngx.var.arg_name).number }
end

function _M.emit()
  for k = 1, tonumber(ngx.var.arg_count or 1) do
    emit(k)
  end
  ngx.say(events.waiting())
end

function _M.fail()
  local known, index = known_and_index()
  local place = known.fleet.place[index]
  answer { ejected = passive_health.failure(place, ngx.var.arg_why or "status", clock.ms()) }
end

--- A stream that sends one byte and then stands still for `ms`; or, without `stream`, an answer that has not begun.
function _M.stall()
  local known, index = known_and_index()
  local r = { n = 1, prompt = 100, mean = 50, sd = 10, stream = ngx.var.arg_stream ~= nil }
  ledger.reserve(r, known.fleet, index, clock.ms())
  if r.stream then
    ledger.first_token(r)
    passive_health.byte(r.place, clock.ms())
  end
  ngx.sleep(tonumber(ngx.var.arg_ms) / 1000)
  if r.stream then
    passive_health.byte(r.place, clock.ms(), tonumber(ngx.var.arg_ms))
  end
  ledger.release(r)
  ngx.say("done")
end

function _M.keys()
  local requests, tokens = peers.key_use(ngx.var.arg_key, tonumber(ngx.var.arg_minute))
  answer { requests = requests, tokens = tokens }
end

--- Makes the lease tell of a key's use.
function _M.use()
  local key, minute = ngx.var.arg_key, tonumber(ngx.var.arg_minute)
  ngx.shared.tokenweir_metrics:set("use", cjson.encode { [key] = { minute = minute, requests = 3, tokens = 500 } })
  ngx.say("done")
end

--- In a worker: lets the lease tell what `use` noted, in place of the rate limiter's figures.
function _M.start()
  lease.provide_key_use(function()
    return cjson.decode(ngx.shared.tokenweir_metrics:get("use") or "{}")
  end)
end

--- Tells of `count` moves, one after the other, unless this is the worker that polls.
function _M.tell()
  local count = poller_lock.is_held() and 0 or tonumber(ngx.var.arg_count)
  for k = 1, count do
    moves.tell(k, 0, "gpu-a", 0, moves.SESSION)
    ngx.sleep(0.01)
  end
  answer { told = count }
end

--- Dies while it adds up what other gateways have on a backend, be it that nobody else does at this moment.
function _M.die_in_sums()
  local known, index = known_and_index()
  local sums = region.begin_peers()
  if sums then
    sums[known.fleet.place[index]].n = 7
    ffi.C.kill(ngx.worker.pid(), KILL)
  end
end

--- So many prompts break off on a backend, each of them twice.
function _M.suspect()
  for k = 1, tonumber(ngx.var.arg_count) do
    for _ = 1, 2 do
      quarantine.suspect { digest = "prompt-" .. k, model = "llama", backend = "gpu-a" }
    end
  end
  ngx.say("done")
end

--- Two workers see at once that the backend has crashed. How many prompts are in quarantine then.
function _M.crash()
  local late = clock.ms() + 1000
  held:incr("seen", 1, 0)
  while held:get("seen") < 2 and clock.ms() < late do end
  quarantine.crashed("gpu-a", 60000)
  held:incr("counted", 1, 0)
  wait_for("counted", 2)
  local count = 0
  for _, key in ipairs(ngx.shared.tokenweir_quarantine:get_keys(0)) do
    count = count + (key:find("^out:") and 1 or 0)
  end
  answer { quarantined = count, pid = ngx.worker.pid() }
end

function _M.wait()
  local known = state.current(clock.ms())
  local place, now = known.fleet.models.llama.place, clock.ms()
  local line = queue_lines.line(place)
  queue_lines.count(place, 1, 1, 100)
  line.count[1], line.oldest[1] = 1, now
  local round = held:get("round")
  while clock.ms() < now + tonumber(ngx.var.arg_ms) and held:get("round") == round do
    ngx.sleep(0.02)
  end
  queue_lines.count(place, 1, -1, 100)
  line.count[1], line.oldest[1] = 0, 0
  ngx.say("done")
end

return _M
