--- The gateway's metrics in Prometheus' text format: `content_by_lua` of GET /metrics.
local clock = require "tokenweir.clock"
local documents = require "tokenweir.documents"
local health = require "tokenweir.core.backend.health"
local ledger = require "tokenweir.ledger"
local load = require "tokenweir.core.backend.load"
local metrics = require "tokenweir.metrics"
local policy = require "tokenweir.core.policy"
local poller = require "tokenweir.poller"
local queue_lines = require "tokenweir.queue_lines"
local redis_state = require "tokenweir.redis_state"
local region = require "tokenweir.region"
local scoreboard = require "tokenweir.scoreboard"
local session_table = require "tokenweir.core.sessions.session_table"
local slowness_of = require("tokenweir.core.sessions.transfer").slowness
local state = require "tokenweir.state"
local targets = require "tokenweir.targets"

local concat, sort = table.concat, table.sort
local pairs, tostring, tonumber = pairs, tostring, tonumber
local huge, max = math.huge, math.max
local CLASS = require("tokenweir.core.queue").CLASS

--- Counters without a shape of their own: name -> help, labels.
local COUNTERS = {
  ejections = { "Backends taken out by passive health.", "backend", "why" },
  liveness_checks = { "Backends that were asked for a page while the sidecar was silent.", "result" },
  events_sent = { "Completion records written to Redis." },
  events_dropped = { "Completion records lost because Redis was away for too long." },
  redis_errors = { "Polls of Redis that failed." },
  workers_swept = { "Workers that died and whose reservations were cleared." },
  retries = { "Requests sent to another backend after a first one could not take them.", "why" },
  limit_counts_lost = { "Counts of a key's use that were forgotten for want of memory." },
  breaker_refusals = { "Requests that the breaker turned away, by its level.", "model", "level" },
  degraded = { "Requests that were served otherwise than asked, by how.", "model", "how" },
  sessions_announced = { "Sessions that this gateway told the others of." },
  queue_refusals = { "Requests that were refused before or while they waited, by reason.", "model", "reason" },
  early_hints = { "103 answers with the position in the queue.", "model" },
  session_requests = { "Requests of sessions, by why they went where they went.", "model", "why" },
  session_moves = { "Moves that this gateway told the others of, by what moved.", "what" },
  session_moves_dropped = { "Batches of moves that were lost because Redis was away for too long." },
  kv_transfers = { "Moves of sessions, by what became of moving their cache.", "model", "outcome" },
  kv_transfer_tokens = { "Prompt tokens whose cache was moved.", "model" },
  kv_transfer_bytes = { "Bytes that were moved.", "model" },
  kv_transfer_found_tokens = { "Those of them that engines then said they had cached.", "model" },
  cached_prompt_tokens = { "Prompt tokens that engines said they had cached.", "model" },
  cached_prompt_tokens_reckoned = { "Prompt tokens that they were reckoned to have.", "model" },
  slow_bodies = { "Requests that were given up because their body came too slowly." },
  quarantined = { "Requests refused because their prompt met two crashes of engines." },
  predicted_output_tokens = { "Predicted means of outputs that were then measured, tokens.", "model" },
  measured_output_tokens = { "The same outputs as measured, tokens.", "model" },
  prediction_error_tokens = { "Sum of the absolute differences of the two.", "model" },
  small_model = { "Questions to the small model, by what came of them.", "result" },
  small_model_error_tokens = {
    "Errors of the medians of answers that the small model was asked of, before and with its corrections.", "median",
  },
  predictor_fallbacks = {
    "How often a model's running figures took over from the predictor, and back.", "model", "what",
  },
  shadow = { "Choices of the shadow policy, by whether they were the same.", "same" },
}

local HISTOGRAMS = {
  wait = { "tokenweir_wait_seconds", "Time in the queue before a backend was chosen." },
  ttft = { "tokenweir_time_to_first_token_seconds", "From arrival to the first byte of content." },
  total = { "tokenweir_request_seconds", "From arrival to the end of the answer." },
  kv_transfer = { "tokenweir_kv_transfer_seconds", "How long requests waited for the move of a cache.", "outcome" },
  queue_wait = { "tokenweir_queue_wait_seconds", "Wait of requests that had to wait and were served.", "priority" },
  queue_wake = { "tokenweir_queue_wake_seconds", "From the release of a place to the choice of who gets it." },
  queue_estimate_ratio = {
    "tokenweir_queue_estimate_ratio", "What waits were, over what they were estimated at first.", "priority",
  },
}

local _M = { COUNTERS = COUNTERS }

local function escape(value)
  return (value:gsub('[\\"\n]', { ["\\"] = "\\\\", ['"'] = '\\"', ["\n"] = "\\n" }))
end

local function number(value)
  if value == huge then
    return "+Inf"
  end
  return ("%.17g"):format(value)
end

--- @param labels list of name, value, name, value ...
local function line(out, name, labels, value)
  local pairs_of = {}
  for k = 1, #labels, 2 do
    pairs_of[#pairs_of + 1] = labels[k] .. '="' .. escape(tostring(labels[k + 1])) .. '"'
  end
  local braces = #pairs_of > 0 and "{" .. concat(pairs_of, ",") .. "}" or ""
  out[#out + 1] = name .. braces .. " " .. number(value)
end

local function head(out, name, kind, help)
  out[#out + 1] = "# HELP " .. name .. " " .. help
  out[#out + 1] = "# TYPE " .. name .. " " .. kind
end

local function collect()
  local requests, tokens, histograms, counters = {}, {}, {}, {}
  for _, item in pairs(metrics.all()) do
    local kind = item[1]
    if kind == "requests" then
      requests[#requests + 1] = item
    elseif kind == "prompt_tokens" or kind == "output_tokens" then
      tokens[#tokens + 1] = item
    elseif kind == "counter" then
      counters[item[2]] = counters[item[2]] or {}
      counters[item[2]][#counters[item[2]] + 1] = item
    elseif kind == "histogram" then
      local name, model = item[2], item[3]
      histograms[name] = histograms[name] or {}
      histograms[name][model] = histograms[name][model] or {}
      histograms[name][model][tonumber(item[4])] = item.value
    end
  end
  return requests, tokens, histograms, counters
end

local function write_requests(out, requests, tokens)
  head(out, "tokenweir_requests_total", "counter", "Requests that ended.")
  for _, item in pairs(requests) do
    line(out, "tokenweir_requests_total", {
      "model", item[2], "backend", item[3], "outcome", item[4], "status", item[5] .. "xx",
    }, item.value)
  end
  for _, kind in pairs { "prompt_tokens", "output_tokens" } do
    local name = "tokenweir_" .. kind .. "_total"
    head(out, name, "counter", kind == "prompt_tokens" and "Prompt tokens." or "Output tokens.")
    for _, item in pairs(tokens) do
      if item[1] == kind then
        line(out, name, { "model", item[2], "backend", item[3] }, item.value)
      end
    end
  end
end

local function write_histogram(out, name, by_series)
  local title, bounds, second = HISTOGRAMS[name][1], metrics.BOUNDS[name], HISTOGRAMS[name][3]
  head(out, title, "histogram", HISTOGRAMS[name][2])
  for series, buckets in pairs(by_series or {}) do
    local cut = second and series:find(metrics.LABELS, 1, true)
    local labels = { "model", cut and series:sub(1, cut - 1) or series }
    if cut then
      labels[3], labels[4] = second, series:sub(cut + 1)
    end
    local sum, n = 0, #labels
    for k = 0, #bounds do
      sum = sum + (buckets[k] or 0)
      labels[n + 1], labels[n + 2] = "le", bounds[k + 1] or "+Inf"
      line(out, title .. "_bucket", labels, sum)
    end
    labels[n + 1], labels[n + 2] = nil, nil
    line(out, title .. "_sum", labels, buckets[#bounds + 1] or 0)
    line(out, title .. "_count", labels, sum)
  end
end

local function write_counters(out, counters)
  local names = {}
  for name in pairs(COUNTERS) do
    names[#names + 1] = name
  end
  sort(names)
  for _, name in pairs(names) do
    local shape, title = COUNTERS[name], "tokenweir_" .. name .. "_total"
    head(out, title, "counter", shape[1])
    local items = counters[name]
    if not items and #shape == 1 then
      line(out, title, {}, 0)
    end
    for _, item in pairs(items or {}) do
      local labels = {}
      for k = 2, #shape do
        labels[#labels + 1], labels[#labels + 2] = shape[k], item[k + 1]
      end
      line(out, title, labels, item.value)
    end
  end
  head(out, "tokenweir_documents_refused_total", "counter", "Documents from Redis that were refused, by reason.")
  for _, item in pairs(documents.refused()) do
    line(out, "tokenweir_documents_refused_total", { "document", item[1], "reason", item[2] }, item[3])
  end
end

local function write_backends(out, fleet, now)
  local row, rows = load.new(0), region.health()
  local inflight, tokens, ejected, keyless, slowness = {}, {}, {}, {}, {}
  for i = 1, fleet and fleet.size or 0 do
    local sum = ledger.sum(row[0], fleet.place[i])
    local labels = { "backend", fleet.id[i] }
    line(inflight, "tokenweir_inflight", labels, sum.n)
    line(tokens, "tokenweir_inflight_tokens", labels, sum.held)
    line(ejected, "tokenweir_backend_ejected", labels,
      health.state(rows[fleet.place[i]], now) == health.CLOSED and 0 or 1)
    line(keyless, "tokenweir_backend_key_missing", labels, fleet.state[i] == targets.NO_KEY and 1 or 0)
    if region.cache().backend[fleet.place[i]].transfer_ratio ~= 0 then
      line(slowness, "tokenweir_kv_transfer_slowness", labels, slowness_of(region.cache(), fleet.place[i], now))
    end
  end
  head(out, "tokenweir_inflight", "gauge", "Sequences that this gateway has in flight on a backend.")
  out[#out + 1] = concat(inflight, "\n")
  head(out, "tokenweir_inflight_tokens", "gauge", "KV tokens that they are reckoned to hold.")
  out[#out + 1] = concat(tokens, "\n")
  head(out, "tokenweir_backend_ejected", "gauge",
    "1 while passive health keeps a backend out, or lets single requests try it.")
  out[#out + 1] = concat(ejected, "\n")
  head(out, "tokenweir_backend_key_missing", "gauge", "1 while the API key that a backend wants is not known here.")
  out[#out + 1] = concat(keyless, "\n")
  if #slowness > 0 then
    head(out, "tokenweir_kv_transfer_slowness", "gauge",
      "How many times longer than configured moves of caches to a backend take.")
    out[#out + 1] = concat(slowness, "\n")
  end
end

local function write_queue(out, fleet, now)
  local depths, sizes, waits, seen = {}, {}, {}, {}
  for _, pool in pairs(fleet and fleet.models or {}) do
    if not seen[pool.name] then
      seen[pool.name] = true
      for priority, class in pairs(CLASS) do
        local depth, bytes = queue_lines.of_class(pool.place, class)
        local since, key = queue_lines.oldest(pool.place, class)
        local labels = { "model", pool.name, "priority", priority }
        line(depths, "tokenweir_queue_depth", labels, depth)
        line(sizes, "tokenweir_queue_bytes", labels, bytes)
        labels[5], labels[6] = "key", key
        line(waits, "tokenweir_queue_oldest_seconds", labels, since > 0 and max(0, now - since) / 1000 or 0)
      end
    end
  end
  head(out, "tokenweir_queue_depth", "gauge", "Requests that wait for a backend.")
  out[#out + 1] = concat(depths, "\n")
  head(out, "tokenweir_queue_bytes", "gauge", "Their bytes.")
  out[#out + 1] = concat(sizes, "\n")
  head(out, "tokenweir_queue_oldest_seconds", "gauge",
    "How long the one that waits longest has waited, and the id of its API key.")
  out[#out + 1] = concat(waits, "\n")
end

local function gauge(out, name, help, value, labels)
  head(out, name, "gauge", help)
  line(out, name, labels or {}, value)
end

local function write_state(out, known, now)
  gauge(out, "tokenweir_snapshot_age_seconds", "Age of the snapshot; infinite if it was only read from disk.",
    known.snapshot_age_ms / 1000)
  gauge(out, "tokenweir_snapshot_stale", "1 while telemetry is not believed.", known.stale and 1 or 0)
  head(out, "tokenweir_document_version", "gauge", "Sequence of the snapshot, version of the other documents.")
  line(out, "tokenweir_document_version", { "document", "snapshot" }, known.sequence)
  line(out, "tokenweir_document_version", { "document", "settings" }, known.settings and known.settings.version or 0)
  line(out, "tokenweir_document_version", { "document", "stats" }, known.stats and known.stats.version or 0)
  local fitted = known.settings and known.settings.predictor.enabled and known.predictor
  gauge(out, "tokenweir_predictor", "The predictor of output lengths: a model's version, or running figures.", 1,
    { "version", fitted and fitted.version or "running" })
  local served = policy.serving(policy.get(known.policy), known.stale)
  gauge(out, "tokenweir_policy", "The policy that decides by now, a stale snapshot considered.", 1,
    { "policy", served.name })
  gauge(out, "tokenweir_breaker_level", "Level of the breaker, 0 to 4.", known.level)
  gauge(out, "tokenweir_redis_up", "1 while Redis answers, and not by errors alone.", redis_state.is_up() and 1 or 0)
  gauge(out, "tokenweir_peers", "Other gateways alive.", poller.peers())
  local remembered, moved = session_table.count(region.cache().sessions, now)
  gauge(out, "tokenweir_sessions", "Sessions and responses that are remembered.", remembered)
  gauge(out, "tokenweir_sessions_moved", "Those that live away from their place on the ring.", moved)
  local _, _, workers = scoreboard.live()
  gauge(out, "tokenweir_workers", "Workers whose reservations count, those that drain included.", workers)
end

--- @return string the metrics of the whole gateway
function _M.render()
  metrics.flush()
  local now = clock.ms()
  local known = state.current(now)
  local out = {}
  local requests, tokens, histograms, counters = collect()
  write_requests(out, requests, tokens)
  for name in pairs(HISTOGRAMS) do
    write_histogram(out, name, histograms[name])
  end
  write_counters(out, counters)
  write_backends(out, known.fleet, now)
  write_queue(out, known.fleet, now)
  write_state(out, known, now)
  out[#out + 1] = ""
  return (concat(out, "\n"):gsub("\n\n+", "\n"))
end

--- Answers GET /metrics.
function _M.serve()
  ngx.header["Content-Type"] = "text/plain; version=0.0.4; charset=utf-8"
  ngx.header["Cache-Control"] = "no-store"
  ngx.print(_M.render())
end

return _M
