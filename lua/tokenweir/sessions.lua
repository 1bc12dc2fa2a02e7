--- Which sessions are served: the memory by which level 1 of the breaker tells known ones from new ones.
--
-- The memory itself is in the region that all workers share. What is new in it goes to the other gateways through a
-- stream in Redis: workers hand it to the one that polls, which writes it in batches and reads what others wrote. A
-- gateway that starts reads the whole stream, so it knows the sessions of before.
local contract = require "tokenweir.contract"
local core = require "tokenweir.core.sessions.known_sessions"
local ffi = require "ffi"
local metrics = require "tokenweir.metrics"
local redis_clock = require "tokenweir.redis_clock"
local region = require "tokenweir.region"
local session = require "tokenweir.core.body.session"
local stream_entry = require "tokenweir.stream_entry"

local dict = ngx.shared.tokenweir_documents
local exiting = ngx.worker.exiting
local known_sessions = region.known_sessions
local concat = table.concat
local floor, max = math.floor, math.max
local identify, text = session.identify, require("tokenweir.core.body.request").text
local learn, mark, knows = core.learn, core.mark, core.knows
local following, read_entry = stream_entry.following, stream_entry.read
local sub = string.sub
local type = type

local KEY, FIELDS, NUMBERS = contract.keys.known_sessions, contract.fields, contract.numbers
local BATCH, CAP = NUMBERS.known_sessions_batch_size, NUMBERS.known_sessions_cap
local QUEUE, LAST = "sessions", "sessions:last"
local MOST_HANDED = 4096        -- texts that wait in the dict
local WRITE_EVERY_MS = 500
local ENTRIES_AT_ONCE = 16       -- some thousand sessions: a worker is not held up by them
local TRIM_EVERY = 600          -- writes between two cuts to the cap

local _M = {}

local pair = ffi.new("int32_t[2]")
local fresh, fresh_count = {}, 0
local write_at, writes = 0, 0

--- Tells the session of a request: `r.session`, `r.session_set` (false where nothing tells one).
-- @param header string or nil, the value of X-Session-ID
function _M.identify(r, settings, header)
  local key = r.key
  local a, b = identify(header, r.parsed, settings.sessions.by_user, key and key.seed or 0)
  r.session, r.session_set = a or false, b or false
end

--- Whether a request belongs to a session that is being served.
function _M.known(r, settings, now)
  if r.session and knows(known_sessions(), r.session, r.session_set, now, settings.sessions.memory_ms) then
    return true
  end
  return r.kind == "responses" and r.parsed.kind and text(r.parsed, "previous_response_id", 1024) ~= nil
end

--- Hands what this worker marked to the one that writes to Redis; from a timer.
function _M.hand_over()
  if fresh_count == 0 then
    return
  end
  if (dict:llen(QUEUE) or 0) < MOST_HANDED then
    dict:rpush(QUEUE, concat(fresh, "", 1, fresh_count))
  end
  for k = fresh_count, 1, -1 do
    fresh[k] = nil
  end
  fresh_count = 0
end

--- A request of the session has got a backend.
function _M.served(r, settings, now)
  local a = r.session
  if a and mark(known_sessions(), a, r.session_set, now, settings.sessions.memory_ms) then
    pair[0], pair[1] = a, r.session_set
    fresh_count = fresh_count + 1
    fresh[fresh_count] = ffi.string(pair, 8)
    if exiting() then
      -- Timers have stopped in a worker that drains.
      _M.hand_over()
    end
  end
end

-- All texts that wait.
local function gather()
  local texts, count = {}, 0
  repeat
    local part = dict:lpop(QUEUE)
    if part then
      count = count + 1
      texts[count] = part
    end
  until not part
  return count > 0 and texts or nil
end

--- Adds the commands of this poll to a pipeline: what is new here, and a look at what others wrote.
-- @param settings of the snapshot, or nil
-- @return table for `take`
function _M.compose(commands, gateway, settings, now)
  local asked = { read = #commands + 1 }
  commands[asked.read] = { "XRANGE", KEY, dict:get(LAST) or "-", "+", "COUNT", ENTRIES_AT_ONCE }
  asked.texts = settings and now >= write_at and gather() or nil
  if asked.texts then
    local batch = concat(asked.texts)
    write_at, writes = now + WRITE_EVERY_MS, writes + 1
    local oldest = floor(redis_clock.ms(now) - core.LIFE * settings.sessions.memory_ms)
    for from = 1, #batch, 8 * BATCH do
      commands[#commands + 1] = {
        "XADD", KEY, "MINID", "~", ("%.0f"):format(oldest), "*", FIELDS.gateway, gateway,
        FIELDS.hashes, sub(batch, from, from + 8 * BATCH - 1),
      }
    end
    asked.written, asked.last = #batch / 8, #commands
    if writes % TRIM_EVERY == 0 then
      commands[#commands + 1] = { "XTRIM", KEY, "MAXLEN", "~", CAP }
    end
  end
  return asked
end

local function learn_batch(sets, hashes, now, age_ms)
  for from = 1, #hashes - 7, 8 do
    ffi.copy(pair, sub(hashes, from, from + 7), 8)
    learn(sets, pair[0], pair[1], now, age_ms)
  end
end

--- Takes the replies of a poll.
function _M.take(replies, asked, now)
  local entries = replies[asked.read]
  if type(entries) == "table" and not entries.err then
    local sets, wall = known_sessions(), redis_clock.ms(now)
    for k = 1, #entries do
      local hashes, written = read_entry(entries[k], FIELDS.hashes)
      if hashes and #hashes <= 8 * BATCH then
        learn_batch(sets, hashes, now, max(0, wall - written))
      end
    end
    if #entries > 0 then
      dict:set(LAST, following(entries[#entries][1]))
    end
  end
  if not asked.texts then
    return
  elseif type(replies[asked.last]) == "string" then
    metrics.add("sessions_announced", asked.written)
    return
  end
  -- Not confirmed: they wait again, for whichever worker polls next.
  for k = #asked.texts, 1, -1 do
    dict:lpush(QUEUE, asked.texts[k])
  end
end

return _M
