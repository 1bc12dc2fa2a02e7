--- This gateway's lease: what it has in flight and what it met, as JSON, every 100 ms. Expires by itself in Redis.
local cjson = require("cjson.safe").new()
local contract = require "tokenweir.contract"
local ledger = require "tokenweir.ledger"
local load = require "tokenweir.core.backend.load"
local numbering = require "tokenweir.numbering"
local passive_health = require "tokenweir.passive_health"
local queue_lines = require "tokenweir.queue_lines"
local redis_clock = require "tokenweir.redis_clock"
local region = require "tokenweir.region"
local scoreboard = require "tokenweir.scoreboard"

local floor, max = math.floor, math.max
local pairs = pairs
local now_wall = ngx.now

local CLASS = require("tokenweir.core.queue").CLASS
local LAST_BUCKET = contract.numbers.buckets - 1

cjson.encode_number_precision(14)

local _M = {}

local row = load.new(0)
local sequence = 0
local key_use  -- function() -> table, see `provide_key_use`

local function buckets_of(sum)
  local buckets = {}
  for b = 0, LAST_BUCKET do
    if sum.bucket_n[b] ~= 0 then
      buckets[tostring(b)] = { sum.bucket_n[b], sum.bucket_held[b], sum.bucket_variance[b] }
    end
  end
  return buckets
end

local function backends()
  local _, workers, count = scoreboard.live()
  local used = 0
  for k = 1, count do
    used = max(used, workers[k].used)
  end
  local list = {}
  for place = 0, used - 1 do
    local id = ledger.count(place) ~= 0 and numbering.backend_at(place)
    if id then
      local sum = ledger.sum(row[0], place)
      list[id] = {
        n = sum.n, held = sum.held, remaining = sum.remaining, variance = sum.variance, prefill = sum.prefill,
        flowing = sum.flowing, buckets = buckets_of(sum),
      }
    end
  end
  return list
end

local function oldest_of(place, now)
  local ages = {}
  for class, number in pairs(CLASS) do
    local since = queue_lines.oldest(place, number)
    if since ~= 0 then
      ages[class] = floor(max(0, now - since))
    end
  end
  return ages
end

local function models(known, now, wall)
  local arrivals, queue = {}, {}
  for _, pool in pairs(known.fleet and known.fleet.models or {}) do
    if not arrivals[pool.name] then
      arrivals[pool.name] = scoreboard.arrivals(pool.place)
      local depth, oldest = queue_lines.depth(pool.place), queue_lines.oldest(pool.place)
      if depth > 0 then
        local front, clock = queue_lines.front(pool.place, known.queue.order, now, wall)
        queue[pool.name] = {
          front = front, clock = clock,
          depth = depth, oldest_ms = floor(max(0, now - oldest)), oldest_by_priority = oldest_of(pool.place, now),
        }
      end
    end
  end
  return arrivals, queue
end

--- @param id string, this gateway's
-- @param known table, `state.current()`
-- @return string JSON of a `Lease`
function _M.build(id, known, now)
  local time_ms = floor(now_wall() * 1000)
  -- Other masters of this gateway (a binary upgrade) write the same lease: time orders them all.
  sequence = max(sequence + 1, time_ms)
  local arrivals, queue = models(known, now, floor(redis_clock.ms(now)))
  return cjson.encode {
    schema = contract.schema, id = id, instance = region.instance(), time_ms = time_ms, sequence = sequence,
    snapshot_sequence = known.sequence, backends = backends(), arrivals = arrivals, queue = queue,
    ejected = passive_health.ejected(known, now), tried = passive_health.tried(known, now),
    keys = key_use and key_use() or {},
  }
end

--- Lets the rate limiter add its figures.
-- @param provider function() -> { [key id] = { minute =, requests =, tokens = } } of this gateway's own requests
function _M.provide_key_use(provider)
  key_use = provider
end

return _M
