--- What other gateways have in flight, from their leases, summed per backend into the shared region.
-- Only the worker that polls Redis does this; every worker of the gateway reads the sums (`region.peers`).
local cjson = require "cjson.safe"
local check = require "tokenweir.core.documents.check"
local contract = require "tokenweir.contract"
local defaults = require "tokenweir.core.documents.defaults"
local documents = require "tokenweir.documents"
local gateways = require "tokenweir.core.queue.gateways"
local queue_lines = require "tokenweir.queue_lines"
local region = require "tokenweir.region"

local dict = ngx.shared.tokenweir_limits
local max, min = math.max, math.min
local pairs, tonumber, type = pairs, tonumber, type

local LAST_BUCKET = contract.numbers.buckets - 1
local KEY_USE_SECONDS = 150

local _M = {}

-- gateway id -> {text, lease; nil if it was refused; at: when it came, ms}
local last = {}
local refused = {}

local function refuse(id, err)
  documents.refuse("lease", "value")
  if not refused[id] then
    refused[id] = true
    ngx.log(ngx.WARN, "tokenweir: the lease of gateway ", id, " is refused: ", err)
  end
end

--- The lease in a text, or nil if it is refused; each text is looked at once.
local function decode(id, text, now)
  local entry = last[id]
  if entry and entry.text == text then
    return entry.lease
  end
  local lease, err = cjson.decode(text)
  local ok = lease ~= nil
  if ok then
    ok, err = check.document(lease, "lease")
  end
  last[id] = { text = text, at = now, lease = ok and defaults.fill(lease, "lease") or nil }
  if ok then
    refused[id] = nil
  else
    refuse(id, err)
  end
  return last[id].lease
end

local function add_load(row, from)
  row.n, row.held, row.remaining = row.n + from.n, row.held + from.held, row.remaining + from.remaining
  row.variance, row.prefill = row.variance + from.variance, row.prefill + from.prefill
  row.flowing = row.flowing + from.flowing
  for name, figures in pairs(from.buckets) do
    local b = tonumber(name)
    if b and b >= 0 and b <= LAST_BUCKET and b % 1 == 0 then
      row.bucket_n[b] = row.bucket_n[b] + figures[1]
      row.bucket_held[b] = row.bucket_held[b] + figures[2]
      row.bucket_variance[b] = row.bucket_variance[b] + figures[3]
    end
  end
end

local function add_use(sums, key, minute, requests, tokens)
  local name = key .. ":" .. minute
  local sum = sums[name] or { 0, 0 }
  sum[1], sum[2] = sum[1] + requests, sum[2] + tokens
  sums[name] = sum
end

--- Sums of the requests and tokens per key and minute, which shared rate limits add to their own. Each lease tells of
-- two minutes, since not all gateways go on to the next at once.
local function publish_key_use(leases)
  local sums = {}
  for _, lease in pairs(leases) do
    for key, use in pairs(lease.keys) do
      add_use(sums, key, use.minute, use.requests, use.tokens)
      if use.requests_before > 0 then
        add_use(sums, key, use.minute - 1, use.requests_before, use.tokens_before)
      end
    end
  end
  for name, sum in pairs(sums) do
    dict:set("key-requests:" .. name, sum[1], KEY_USE_SECONDS)
    dict:set("key-tokens:" .. name, sum[2], KEY_USE_SECONDS)
  end
end

-- How far the others' queues of each model are. A gateway that falls silent counts in this no longer than `STALE_MS`.
local function hear_fronts(leases, fleet, now)
  for _, pool in pairs(fleet.models) do
    local front, clock
    for id, lease in pairs(leases) do
      local queue = lease.queue[pool.name]
      local there = queue and queue.front
      if there and now - last[id].at < gateways.STALE_MS then
        front, clock = min(front or there, there), max(clock or queue.clock, queue.clock)
      end
    end
    queue_lines.hear(pool.place, front, clock, now)
  end
end

--- Takes the leases that were read in one poll.
-- @param ids list of gateway ids; @param texts list of their leases, no string where there is none
-- @param fleet table or nil
-- @param own_id string, this gateway's: left out
-- @return number of other gateways alive
function _M.apply(ids, texts, fleet, own_id, now)
  local leases, there, count = {}, {}, 0
  for k = 1, #ids do
    local id, text = ids[k], texts[k]
    if id ~= own_id and type(text) == "string" then
      there[id] = true
      local lease = decode(id, text, now)
      if lease then
        leases[id] = lease
        count = count + 1
      end
    end
  end
  for id in pairs(last) do
    if not there[id] then
      last[id] = nil
    end
  end
  local sums = region.begin_peers()
  if not sums then
    return count
  end
  local used = 0
  for _, lease in pairs(leases) do
    for backend, from in pairs(lease.backends) do
      local i = fleet and fleet.index[backend]
      if i then
        local place = fleet.place[i]
        add_load(sums[place], from)
        if place >= used then
          used = place + 1
        end
      end
    end
  end
  region.end_peers(used, now)
  if fleet then
    hear_fronts(leases, fleet, now)
  end
  publish_key_use(leases)
  return count
end

--- What other gateways counted for a key in a minute.
-- @return number requests, number tokens
function _M.key_use(key, minute)
  local name = key .. ":" .. minute
  return dict:get("key-requests:" .. name) or 0, dict:get("key-tokens:" .. name) or 0
end

return _M
