--- One worker of a gateway polls Redis: it writes the lease and fetches the documents and the other gateways' leases,
-- all in one pipeline. Without Redis everything goes on by what is known; attempts are spaced out to a second, and only
-- a change of state is logged.
local cjson = require "cjson.safe"
local check = require "tokenweir.core.documents.check"
local clock = require "tokenweir.clock"
local config = require "tokenweir.config"
local contract = require "tokenweir.contract"
local disk = require "tokenweir.disk"
local documents = require "tokenweir.documents"
local lease = require "tokenweir.lease"
local metrics = require "tokenweir.metrics"
local moves = require "tokenweir.moves"
local peers = require "tokenweir.peers"
local redis = require "tokenweir.redis"
local redis_clock = require "tokenweir.redis_clock"
local sessions = require "tokenweir.sessions"
local state = require "tokenweir.state"

local dict = ngx.shared.tokenweir_documents
local now_ms = clock.ms
local crc32 = ngx.crc32_long
local floor, min = math.floor, math.min
local type = type

local KEYS, NUMBERS = contract.keys, contract.numbers
local HOLD_MS = 1000            -- a poller that says nothing for so long is replaced
local BACK_OFF_MS = 1000
local SLOW_EVERY = 5            -- settings and statistics are looked at every so many polls
local RARE_EVERY = 50           -- at what only those who start need
local LARGE = 65536             -- of a larger document only the head is compared
local HEAD = 255
local WHOLE_EVERY_MS = 5000     -- and now and then the whole
local MOST_PEERS = 255
local FORGET_EVERY = 100        -- polls between two cleanings of the list of gateways
local MOST_REFUSALS = 16         -- error replies that are told
local MOST_SAID = 2000          -- characters of reasons that are told in one outage
local FORGET_MS = 3600000       -- generous: at first its times come from the gateways' own clocks

local _M = {}

local identity          -- of this worker
local polling = false
local polls, failures, retry_at = 0, 0, 0
local known_ids = {}
local fetched = {}      -- document -> {text =, head =, version = of the published one then, whole_at =}
local refused_before, refused_at = {}, 0  -- error replies that were told; the poll in which the last one came
local followed          -- what was last seen of the key that names the predictor in service

--- Whether this worker is the one that polls. The lock holds a deadline on the monotonic clock, since a dict's own
-- expiry follows wall time, which may jump.
local function hold_lock(now)
  local holder, until_ms = dict:get("poller"), dict:get("poller:until")
  if holder ~= identity and holder and until_ms and now < until_ms and until_ms - now <= HOLD_MS then
    return false
  end
  dict:set("poller", identity)
  dict:set("poller:until", now + HOLD_MS)
  return dict:get("poller") == identity
end

--- Lets another worker poll at once; when this one drains.
function _M.yield()
  disk.flush(now_ms(), true)
  if identity and dict:get("poller") == identity then
    dict:delete("poller")
  end
end

local function option_of(name)
  local entry = fetched[name]
  if not entry then
    entry = { text = nil, head = nil, version = nil, whole_at = 0 }
    fetched[name] = entry
  end
  return entry
end

--- The command that looks at a document, and whether it fetches the whole.
local function look(name, now)
  local entry = option_of(name)
  if not entry.text or #entry.text < LARGE or now - entry.whole_at > WHOLE_EVERY_MS then
    return { "GET", KEYS[name] }, true
  end
  return { "GETRANGE", KEYS[name], 0, HEAD }, false
end

-- A document of a thousand backends takes a while: requests get their turn in between. Without any delay nginx would go
-- on with this before it looks at its connections.
local function pause()
  ngx.sleep(0.001)
end

-- Of a megabyte that takes 3 ms, so only of what is refused.
local function digest(text)
  return crc32(text) .. ":" .. #text
end

local function take_document(name, text)
  local entry = option_of(name)
  entry.whole_at = now_ms()
  local present, version = documents.is_present(name), documents.version(name)
  -- One that polled before and was held up may have put an older one over it.
  if text == entry.text and present and version == entry.version then
    return
  end
  entry.text, entry.head, entry.version = text, text:sub(1, HEAD + 1), version
  if present and name ~= "snapshot" and text == dict:get(name) then
    return
  end
  -- Another worker may have polled before, and refused this text already.
  local refused = dict:get("last-refused:" .. name) or ""
  if refused ~= "" and refused == digest(text) then
    return
  end
  local new, reason, detail = documents.admit(name, text, "redis", state.trial(name), pause)
  local refusal = new == nil and digest(text) or ""
  if refusal ~= refused then
    dict:set("last-refused:" .. name, refusal)
  end
  entry.version = documents.version(name)
  if new then
    if #text >= LARGE then
      pause()
    end
    state.refresh(now_ms(), true)
    disk.save(name, text)
  elseif new == nil and not reason then
    return
  elseif new == nil then
    local said = name .. ": " .. reason
    if entry.said ~= said then
      entry.said = said
      ngx.log(ngx.ERR, "tokenweir: refused the ", name, " from Redis (", reason, "): ", detail or "")
    end
    return
  end
  entry.said = nil
end

local function is_error(reply)
  return type(reply) == "table" and reply.err
end

-- Each reason is told once in an outage. What was said is in the dict, so that the next poller need not say it again.
local function set_connected(up, why)
  local said = dict:get("redis:said")
  if up then
    if said ~= "" then
      ngx.log(ngx.NOTICE, "tokenweir: Redis answers")
      dict:set("redis:said", "")
    end
  elseif not (said or ""):find("\n" .. why .. "\n", 1, true) and #(said or "") < MOST_SAID then
    ngx.log(ngx.ERR, "tokenweir: Redis does not answer, going on with what is known: ", why)
    dict:set("redis:said", (said or "") .. "\n" .. why .. "\n")
  end
  dict:set("redis:up", up and 1 or 0)
end

local function back_off(err, now)
  failures = failures + 1
  retry_at = now + min(BACK_OFF_MS, config.current.poll_ms * 2 ^ min(failures - 1, 10))
  set_connected(false, err)
end

local function fail(err, now)
  metrics.add("redis_errors", 1)
  back_off(err, now)
end

local function compose(known, now)
  local id = config.current.gateway_id
  local wall = floor(redis_clock.ms(now))
  local commands = {
    { "SET", KEYS.gateway .. id, lease.build(id, known, now), "PX", NUMBERS.lease_ms },
    { "ZADD", KEYS.gateways, wall, id },
    { "ZREVRANGE", KEYS.gateways, 0, MOST_PEERS },
  }
  local asked = { "snapshot" }
  if polls % SLOW_EVERY == 1 then
    asked[2], asked[3] = "settings", "stats"
  end
  if polls % RARE_EVERY == 1 then
    asked[#asked + 1] = "histories"
  end
  -- Settings before the snapshot that may need them.
  for k = #asked, 1, -1 do
    local command, whole = look(asked[k], now)
    commands[#commands + 1] = command
    asked[k] = { name = asked[k], at = #commands, whole = whole }
  end
  local peers_at
  if #known_ids > 0 then
    local keys = { "MGET" }
    for k = 1, #known_ids do
      keys[k + 1] = KEYS.gateway .. known_ids[k]
    end
    commands[#commands + 1] = keys
    peers_at = #commands
  end
  if polls % FORGET_EVERY == 1 then
    commands[#commands + 1] = { "ZREMRANGEBYSCORE", KEYS.gateways, "-inf", wall - FORGET_MS }
  end
  local predictor_at, time_at
  if polls % SLOW_EVERY == 1 then
    commands[#commands + 1] = { "GET", KEYS.predictor_current }
    predictor_at = #commands
    local question = redis_clock.question()
    if question then
      commands[#commands + 1] = question
      time_at = #commands
    end
  end
  local known_sessions = sessions.compose(commands, id, known.settings, now)
  local known_moves = moves.compose(commands, id, known.settings)
  return commands, asked, { peers = peers_at, predictor = predictor_at, time = time_at }, known_sessions, known_moves
end

-- Fetches the model that the key names, when it names another one than the last time. One that was refused is not asked
-- for again.
local function follow_predictor(connection, text)
  local settled = documents.is_present("predictor_model") or (dict:get("last-refused:predictor_model") or "") ~= ""
  if text == followed and settled then
    return true
  end
  local current, err = cjson.decode(text)
  local ok
  ok, err = check.document(current or err, "predictor_current")
  if not ok then
    if text ~= followed then
      documents.refuse("predictor_current", "value")
      ngx.log(ngx.ERR, "tokenweir: the predictor in service is not known: ", err)
    end
    followed = text
    return true
  end
  local replies
  replies, err = connection:pipeline { { "GET", KEYS.predictor_model .. current.version } }
  if not replies then
    return nil, err
  end
  if type(replies[1]) == "string" then
    followed = text
    take_document("predictor_model", replies[1])
  end
  return true
end

local function take_replies(connection, replies, asked, places, known)
  local peers_at, predictor_at = places.peers, places.predictor
  if places.time then
    redis_clock.take(replies[places.time], now_ms())
  end
  for k = #asked, 1, -1 do
    local item = asked[k]
    local reply = replies[item.at]
    if not item.whole and type(reply) == "string" and reply ~= fetched[item.name].head then
      local again, err = connection:pipeline { { "GET", KEYS[item.name] } }
      if not again then
        return nil, err
      end
      reply, item.whole = again[1], true
    end
    if item.whole and type(reply) == "string" then
      take_document(item.name, reply)
    end
  end
  local own_id = config.current.gateway_id
  local leases = peers_at and replies[peers_at] or {}
  if not is_error(leases) then
    dict:set("peers", peers.apply(known_ids, leases, known.fleet, own_id, now_ms()))
  end
  if not is_error(replies[3]) then
    known_ids = {}
    for _, id in ipairs(replies[3]) do
      if id ~= own_id then
        known_ids[#known_ids + 1] = id
      end
    end
  end
  if predictor_at and type(replies[predictor_at]) == "string" then
    return follow_predictor(connection, replies[predictor_at])
  end
  return true
end

--- An error reply (a missing permission, say) is told once, not ten times a second, until none came for a while: some
-- commands are asked rarely.
-- @return the first one, or nil, and whether there was nothing else
local function tell_errors(replies)
  local first
  local count = 0
  for k = 1, #replies do
    local err = is_error(replies[k])
    count = count + (err and 1 or 0)
    if err and not first then
      first, refused_at = err, polls
      metrics.add("redis_errors", 1)
    end
    if err and not refused_before[err] and #refused_before < MOST_REFUSALS then
      refused_before[err], refused_before[#refused_before + 1] = true, err
      ngx.log(ngx.ERR, "tokenweir: Redis refused a command: ", err)
    end
  end
  if polls - refused_at > 2 * RARE_EVERY and #refused_before > 0 then
    refused_before = {}
  end
  return first, count == #replies
end

local function poll(now)
  local connection, err = redis.connect(config.current.redis)
  if not connection then
    return fail(err, now)
  end
  polls = polls + 1
  local known = state.current(now)
  local commands, asked, places, known_sessions, known_moves = compose(known, now)
  local replies
  replies, err = connection:pipeline(commands)
  if not replies then
    moves.failed(known_moves)
    return fail(err, now)
  end
  -- First what was sent: what is still to be fetched may fail.
  sessions.take(replies, known_sessions, now)
  moves.take(replies, known_moves)
  local ok
  ok, err = take_replies(connection, replies, asked, places, known)
  if not ok then
    return fail(err, now)
  end
  local refused, all = tell_errors(replies)
  if refused then
    redis.give_up(connection, config.current.redis, refused)
  else
    connection:keep()
  end
  if refused and all then
    return back_off(refused, now)
  end
  failures, retry_at = 0, 0
  set_connected(true)
end

--- One turn of the timer.
-- @return boolean whether this worker is the gateway's poller
function _M.tick(now)
  identity = identity or ngx.worker.pid() .. ":" .. floor(now)
  if not hold_lock(now) then
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

--- @return boolean whether this worker is the gateway's poller
function _M.polls()
  return identity ~= nil and dict:get("poller") == identity
end

--- @return boolean whether Redis answered the last time
function _M.up()
  return dict:get("redis:up") == 1
end

--- @return number of other gateways alive
function _M.peers()
  return _M.up() and dict:get("peers") or 0
end

return _M
