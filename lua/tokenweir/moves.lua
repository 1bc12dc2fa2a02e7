--- Sessions that do not live where the ring puts them, and responses and who made them: told to all gateways by a
-- stream in Redis that each of them applies in order.
--
-- Who moves a session tells so a moment later, in a timer of its own; the worker that polls looks 25 times a second.
-- What Redis did not take waits in the shared dict for the poller. An entry is a batch of records: the two halves of a
-- hash (4 bytes each), the tokens that are there (4), what it is (1), the length of the backend's id (1), the id.
local bit = require "bit"
local clock = require "tokenweir.clock"
local config = require "tokenweir.config"
local contract = require "tokenweir.contract"
local core = require "tokenweir.core.sessions.affinity"
local ffi = require "ffi"
local metrics = require "tokenweir.metrics"
local redis = require "tokenweir.redis"
local redis_clock = require "tokenweir.redis_clock"
local region = require "tokenweir.region"
local state = require "tokenweir.state"
local stream_entry = require "tokenweir.stream_entry"

local dict = ngx.shared.tokenweir_documents
local ngx = ngx
local now_ms, timer_at = clock.ms, ngx.timer.at
local concat = table.concat
local floor, max, min = math.floor, math.max, math.min
local following, read_entry = stream_entry.following, stream_entry.read
local byte, sub = string.byte, string.sub
local pcall, tobit, type = pcall, bit.tobit, type

local KEY, FIELDS, NUMBERS = contract.keys.session_moves, contract.fields, contract.numbers
local CAP, BATCH = NUMBERS.session_moves_cap, NUMBERS.session_moves_batch_bytes
local HEAD = 14
local UNSENT, LAST = "moves", "moves:last"
local MOST_UNSENT = 4096        -- batches that wait in the dict while Redis is away
local BATCHES_AT_ONCE = 1024    -- of them, in a poll: more than the workers make meanwhile
local ENTRIES_AT_ONCE = 1024
local TRIM_EVERY = 600          -- polls between two cuts to the cap
local GATHER_S = 0.005
local BACK_OFF_MS = 1000

local _M = { SESSION = 0, RESPONSE = 1, HOME = 2 }

local head = ffi.new("struct { int32_t a, b; uint32_t tokens; uint8_t what, length; } __attribute__((packed))[1]")
local pending, count, scheduled = {}, 0, false
local polls = 0
local reading, read_at = false, 0

-- What is older than any move or remembered response lives is forgotten by Redis too.
local function command(gateway, batch, life_ms)
  local oldest = redis_clock.ms(now_ms()) - life_ms
  return {
    "XADD", KEY, "MINID", "~", ("%.0f"):format(oldest), "*", FIELDS.gateway, gateway, FIELDS.moves, batch,
  }
end

local function life_of(settings)
  return max(settings.sessions.move_ms, settings.sessions.memory_ms)
end

local function keep(batch)
  if (dict:llen(UNSENT) or 0) < MOST_UNSENT then
    dict:rpush(UNSENT, batch)
  else
    metrics.add("session_moves_dropped", 1)
  end
end

local function take_pending()
  local batch = concat(pending, "", 1, count)
  for k = count, 1, -1 do
    pending[k] = nil
  end
  count = 0
  return batch
end

local function send(premature)
  scheduled = false
  if count == 0 then
    return
  end
  local batch = take_pending()
  -- Nothing passes what waits already.
  local settings = not premature and (dict:llen(UNSENT) or 0) == 0 and state.settings()
  local connection = settings and redis.connect(config.current.redis)
  local replies = connection and connection:pipeline { command(config.current.gateway_id, batch, life_of(settings)) }
  if replies and type(replies[1]) == "string" then
    connection:keep()
  else
    keep(batch)
  end
end

--- Tells the other gateways.
-- @param a, b halves of the hash; @param backend its id, "" for none
-- @param tokens that are in its cache; @param what SESSION, RESPONSE or HOME
function _M.tell(a, b, backend, tokens, what)
  local record = head[0]
  record.a, record.b, record.tokens = a, b, min(max(tokens, 0), 2 ^ 31)
  record.what, record.length = what, #backend
  count = count + 1
  pending[count] = ffi.string(head, HEAD) .. backend
  metrics.add("session_moves", 1, what == _M.RESPONSE and "response" or what == _M.HOME and "home" or "session")
  if not scheduled then
    -- A worker that drains starts no timer; its poller, or another's, sends it.
    scheduled = timer_at(GATHER_S, send)
    if not scheduled then
      keep(take_pending())
    end
  elseif count * 64 > BATCH then
    keep(take_pending())
  end
end

--- Adds the commands of a poll: what could not be sent before.
-- @return table for `take`
function _M.compose(commands, gateway, settings)
  local asked = { first = #commands + 1, batches = {} }
  polls = polls + 1
  for k = 1, settings and BATCHES_AT_ONCE or 0 do
    local batch = dict:lpop(UNSENT)
    if not batch then
      break
    end
    asked.batches[k] = batch
    commands[#commands + 1] = command(gateway, batch, life_of(settings))
  end
  if polls % TRIM_EVERY == 0 then
    commands[#commands + 1] = { "XTRIM", KEY, "MAXLEN", "~", CAP }
  end
  return asked
end

--- Takes the replies of a poll: what was not confirmed waits again.
function _M.take(replies, asked)
  for k = #asked.batches, 1, -1 do
    if type(replies[asked.first + k - 1]) ~= "string" then
      dict:lpush(UNSENT, asked.batches[k])
    end
  end
end

local function word(text, at)
  local p, q, r, s = byte(text, at, at + 3)
  return p + q * 256 + r * 65536 + s * 16777216
end

local function apply(batch, fleet, settings, now, age_ms)
  local at, size = 1, #batch
  while at + HEAD - 1 <= size do
    local a, b, tokens = tobit(word(batch, at)), tobit(word(batch, at + 4)), word(batch, at + 8)
    local what, length = byte(batch, at + 12, at + 13)
    local id = sub(batch, at + HEAD, at + HEAD + length - 1)
    local i = what ~= _M.HOME and fleet.index[id]
    local life = what == _M.RESPONSE and settings.sessions.memory_ms or settings.sessions.move_ms
    if what == _M.HOME or i then
      core.learn(region.cache(), a, b, i and fleet.place[i], tokens, now, age_ms, life)
    end
    at = at + HEAD + length
  end
end

local function apply_entries(entries, fleet, settings, now)
  local wall = redis_clock.ms(now)
  for k = 1, #entries do
    local batch, written = read_entry(entries[k], FIELDS.moves)
    if batch then
      apply(batch, fleet, settings, now, max(0, floor(wall - written)))
    end
  end
  if #entries > 0 then
    dict:set(LAST, following(entries[#entries][1]))
  end
end

local function read(known, now)
  local connection = redis.connect(config.current.redis)
  local replies = connection and connection:pipeline {
    { "XRANGE", KEY, dict:get(LAST) or "-", "+", "COUNT", ENTRIES_AT_ONCE },
  }
  if not replies then
    read_at = now + BACK_OFF_MS
    return
  end
  connection:keep()
  local entries = replies[1]
  if type(entries) == "table" and not entries.err then
    apply_entries(entries, known.fleet, known.settings, now)
  end
end

--- Reads what was told since the last time; from a timer of the worker that polls. Nothing is read while the fleet is
-- not known, nor while Redis is away but for a try a second.
function _M.look(known, now)
  if reading or now < read_at or not known.fleet or not known.settings then
    return
  end
  reading = true
  local ok, err = pcall(read, known, now)
  reading = false
  if not ok then
    read_at = now + BACK_OFF_MS
    ngx.log(ngx.ERR, "tokenweir: the moves of sessions could not be read: ", err)
  end
end

return _M
