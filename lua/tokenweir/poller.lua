--- One worker of a gateway polls Redis: it writes the lease and fetches the documents and the other gateways' leases,
-- all in one pipeline. Without Redis everything goes on by what is known; attempts are spaced out to a second.
local clock = require "tokenweir.clock"
local config = require "tokenweir.config"
local contract = require "tokenweir.contract"
local disk = require "tokenweir.disk"
local document_fetch = require "tokenweir.document_fetch"
local lease = require "tokenweir.lease"
local metrics = require "tokenweir.metrics"
local moves = require "tokenweir.moves"
local peers = require "tokenweir.peers"
local poller_lock = require "tokenweir.poller_lock"
local redis = require "tokenweir.redis"
local redis_clock = require "tokenweir.redis_clock"
local redis_state = require "tokenweir.redis_state"
local sessions = require "tokenweir.sessions"
local state = require "tokenweir.state"

local dict = ngx.shared.tokenweir_documents
local now_ms = clock.ms
local floor, min = math.floor, math.min
local type = type

local KEYS, NUMBERS = contract.keys, contract.numbers
local BACK_OFF_MS = 1000
local SLOW_EVERY = 5            -- settings and statistics are looked at every so many polls
local RARE_EVERY = 50           -- at what only those who start need
local MOST_PEERS = 255
local FORGET_EVERY = 100        -- polls between two cleanings of the list of gateways
local FORGET_MS = 3600000       -- generous: at first its times come from the gateways' own clocks

local _M = {}

local polling = false
local polls, failures, retry_at = 0, 0, 0
local known_ids                 -- of the other gateways; nil where another worker has polled since they were told

--- Lets another worker poll at once; when this one drains.
function _M.yield()
  disk.flush(now_ms(), true)
  poller_lock.release()
end

local function back_off(err, now)
  failures = failures + 1
  retry_at = now + min(BACK_OFF_MS, config.current.poll_ms * 2 ^ min(failures - 1, 10))
  redis_state.away(err)
end

local function fail(err, now)
  metrics.add("redis_errors", 1)
  back_off(err, now)
end

-- Settings before the snapshot that may need them.
local function documents_due()
  local due = {}
  if polls % RARE_EVERY == 1 then
    due[1] = "histories"
  end
  if polls % SLOW_EVERY == 1 then
    due[#due + 1], due[#due + 2] = "stats", "settings"
  end
  due[#due + 1] = "snapshot"
  return due
end

-- The commands of one poll, and what is needed to find the replies.
local function compose(known, now)
  local id = config.current.gateway_id
  local wall = floor(redis_clock.ms(now))
  local commands = {
    { "SET", KEYS.gateway .. id, lease.build(id, known, now), "PX", NUMBERS.lease_ms },
    { "ZADD", KEYS.gateways, wall, id },
    { "ZREVRANGE", KEYS.gateways, 0, MOST_PEERS },
  }
  local places = { ids = 3, documents = document_fetch.ask(commands, documents_due(), now), peers = known_ids }
  if known_ids and #known_ids > 0 then
    local keys = { "MGET" }
    for k = 1, #known_ids do
      keys[k + 1] = KEYS.gateway .. known_ids[k]
    end
    commands[#commands + 1] = keys
    places.leases = #commands
  end
  if polls % FORGET_EVERY == 1 then
    commands[#commands + 1] = { "ZREMRANGEBYSCORE", KEYS.gateways, "-inf", wall - FORGET_MS }
  end
  if polls % SLOW_EVERY == 1 then
    commands[#commands + 1] = { "GET", KEYS.predictor_current }
    places.predictor = #commands
    local question = redis_clock.question()
    if question then
      commands[#commands + 1] = question
      places.time = #commands
    end
  end
  places.sessions = sessions.compose(commands, id, known.settings, now)
  places.moves = moves.compose(commands, id, known.settings)
  return commands, places
end

local function take_peers(replies, places, known)
  local own_id = config.current.gateway_id
  local leases = places.leases and replies[places.leases] or {}
  if places.peers and not redis_state.refusal(leases) then
    dict:set("peers", peers.apply(places.peers, leases, known.fleet, own_id, now_ms()))
  end
  local ids = replies[places.ids]
  if not redis_state.refusal(ids) then
    known_ids = {}
    for _, id in ipairs(ids) do
      if id ~= own_id then
        known_ids[#known_ids + 1] = id
      end
    end
  end
end

local function take(connection, replies, places, known)
  if places.time then
    redis_clock.take(replies[places.time], now_ms())
  end
  local ok, err = document_fetch.take(connection, replies, places.documents)
  if not ok then
    return nil, err
  end
  take_peers(replies, places, known)
  local current = places.predictor and replies[places.predictor]
  if type(current) == "string" then
    return document_fetch.follow_predictor(connection, current)
  end
  return true
end

local function poll(now)
  local connection, err = redis.connect(config.current.redis)
  if not connection then
    return fail(err, now)
  end
  polls = polls + 1
  local known = state.current(now)
  local commands, places = compose(known, now)
  local replies
  replies, err = connection:pipeline(commands)
  -- First what was sent: what is still to be fetched may fail.
  sessions.take(replies or {}, places.sessions, now)
  moves.take(replies or {}, places.moves)
  if not replies then
    return fail(err, now)
  end
  local ok
  ok, err = take(connection, replies, places, known)
  if not ok then
    return fail(err, now)
  end
  local refused, all = redis_state.look_for_refusals(replies)
  if refused then
    redis.give_up(connection, config.current.redis, refused)
  else
    connection:keep()
  end
  if refused and all then
    return back_off(refused, now)
  end
  failures, retry_at = 0, 0
  redis_state.answers()
end

--- One turn of the timer.
-- @return boolean whether this worker is the gateway's poller
function _M.tick(now)
  if not poller_lock.hold(now) then
    known_ids = nil
    return false
  end
  disk.flush(now)
  if polling or now < retry_at then
    return true
  end
  polling = true
  local ok, err = pcall(poll, now)
  polling = false
  if not ok then
    fail(err, now)
  end
  return true
end

--- @return number of other gateways alive
function _M.peers()
  return redis_state.is_up() and dict:get("peers") or 0
end

return _M
