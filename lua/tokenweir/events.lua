--- Completion records on their way to Redis: a bounded buffer in this worker, written in batches from a timer.
--
--   local to = events.begin()                   -- in log_by_lua
--   if to then
--     to:put('"id":"...","model":"..."')        -- as `core/completion_json.lua` does
--     events.finish()
--   end
--
-- A batch carries its source and how many records that source made before, those dropped included: the reader sees a
-- gap as a loss and an overlap as a batch that was sent twice. While Redis is away records wait; beyond the bound new
-- ones are dropped and counted. A worker that exits hands what is left to the others. Lost without being counted here:
-- what waits in a worker that is killed, or in a gateway that is stopped at once (SIGTERM): a tenth of a second's, or
-- what has come since Redis is away.
local cjson = require "cjson.safe"
local clock = require "tokenweir.clock"
local config = require "tokenweir.config"
local contract = require "tokenweir.contract"
local ffi = require "ffi"
local fixed_array = require "tokenweir.core.fixed_array"
local metrics = require "tokenweir.metrics"
local redis = require "tokenweir.redis"
local new_buffer = require("string.buffer").new

local dict = ngx.shared.tokenweir_handover
local exiting = ngx.worker.exiting
local floor, max, min = math.floor, math.max, math.min
local format = string.format
local now_wall = ngx.now

local CAPACITY = 8192
local BATCH = 256
local BATCHES = 16              -- of one pipeline
local QUEUE = "events"
local MOST_HANDED = 4096        -- batches that wait in the dict
local BACK_OFF_MS = 1000

local KEY, FIELDS = contract.keys.completions, contract.fields
local MOST_BYTES, MOST_ENTRIES = contract.numbers.completions_bytes, contract.numbers.completions_most
local LEAST_ENTRIES = 100
local ENTRY_OVERHEAD = 200      -- bytes of Redis beside a batch

local _M = { CAPACITY = CAPACITY }

-- `made`: records that this worker made, the dropped ones included; `waiting`: those that are here; `first`, `size`:
-- the batch that grows has the records number first .. first + size - 1; `head_at`: the time that `head` is of. One
-- structure, in one line of the processor's cache, since every request needs all of them.
ffi.cdef [[ typedef struct { double made, waiting, first, size, head_at; bool flush_due; } tw_events; ]]
local records = fixed_array.new("tw_events", 1)
local open = new_buffer()       -- the batch that grows
local pending = {}              -- batches not yet confirmed: { source, first, batch, size }
local source
local flushing = false
local retry_at, failures = 0, 0

local function source_name()
  source = source or config.current.gateway_id .. ":" .. ngx.worker.pid() .. ":" .. floor(now_wall() * 1000)
  return source
end

local function flush_in_timer(premature)
  records.flush_due = false
  _M.flush(clock.ms(), premature)
end

local function close_batch()
  if records.size == 0 then
    return
  end
  open:put("]")
  pending[#pending + 1] = { source = source_name(), first = records.first, batch = open:get(), size = records.size }
  records.size = 0
end

-- What every record of this gateway begins with; made anew when nginx's clock has moved.
local head

local function head_of(now)
  if now ~= records.head_at then
    records.head_at = now
    head = '{"gateway":"' .. config.current.gateway_id .. '","time_ms":' .. format("%.0f", now * 1000) .. ","
  end
  return head
end

--- Begins a record. Between this and `finish` nothing else may happen.
-- @return the buffer that takes the JSON members of a `Completion` without braces, but for `gateway` and `time_ms`, at
--   least one; or nil: no more fit (counted)
function _M.begin()
  records.made = records.made + 1
  if records.waiting >= CAPACITY then
    close_batch()  -- the numbers within a batch follow each other
    metrics.add("events_dropped", 1)
    return nil
  end
  if records.size == 0 then
    records.first = records.made - 1
  end
  open:put(records.size == 0 and "[" or ",", head_of(now_wall()))
  return open
end

--- Ends the record that `begin` began.
function _M.finish()
  open:put("}")
  records.waiting, records.size = records.waiting + 1, records.size + 1
  if records.size == BATCH then
    close_batch()
  end
  -- Timers have stopped in a worker that drains, but one without a delay still runs.
  if not records.flush_due and exiting() then
    records.flush_due = ngx.timer.at(0, flush_in_timer) and true or false
  end
end

local function adopt_handed()
  local text = dict:lpop(QUEUE)
  local entry = text and cjson.decode(text)
  if entry then
    pending[#pending + 1] = entry
    records.waiting = records.waiting + entry.size
  end
  return entry ~= nil
end

local function prepare()
  while #pending < BATCHES and adopt_handed() do end
  close_batch()
end

-- How many entries of the size of these the stream may hold. A stream that nobody reads must not fill Redis, in which
-- leases and decisions need room.
local function most_entries(count)
  local bytes = 0
  for k = 1, count do
    bytes = bytes + #pending[k].batch + ENTRY_OVERHEAD
  end
  return floor(max(LEAST_ENTRIES, min(MOST_ENTRIES, MOST_BYTES / (bytes / count))))
end

local function send(connection)
  local commands = {}
  local count = min(#pending, BATCHES)
  local cap = most_entries(count)
  for k = 1, count do
    local entry = pending[k]
    commands[k] = {
      "XADD", KEY, "MAXLEN", "~", cap, "*", FIELDS.batch, entry.batch, FIELDS.source, entry.source,
      FIELDS.first, ("%.0f"):format(entry.first),
    }
  end
  local replies, err = connection:pipeline(commands)
  if not replies then
    return nil, err
  end
  local left, refused = {}, nil
  for k = 1, #pending do
    local reply = replies[k]
    if type(reply) == "string" then
      metrics.add("events_sent", pending[k].size)
      records.waiting = records.waiting - pending[k].size
    else
      refused = reply and reply.err or refused
      left[#left + 1] = pending[k]
    end
  end
  pending = left
  return not refused, refused
end

local function drain()
  local connection, err = redis.connect(config.current.redis)
  if not connection then
    return nil, err
  end
  repeat
    prepare()
    if #pending > 0 then
      local ok
      ok, err = send(connection)
      if not ok then
        connection:close()
        return nil, err
      end
    end
  until records.waiting == 0
  connection:keep()
  return true
end

--- Writes what waits; from a timer.
-- @param at_once boolean, without regard to the back-off
-- @return true, or nil, err
function _M.flush(now, at_once)
  if flushing or (not at_once and now < retry_at) or (records.waiting == 0 and dict:llen(QUEUE) == 0) then
    return true
  end
  flushing = true
  local ok, done, err = pcall(drain)
  flushing = false
  if not ok then
    done, err = nil, done
  end
  if done then
    failures, retry_at = 0, 0
    return true
  end
  -- That Redis is away, the poller tells.
  failures = failures + 1
  retry_at = now + min(BACK_OFF_MS, 100 * 2 ^ min(failures - 1, 10))
  return nil, err
end

--- Hands what is left to the gateway's other workers; in exit_worker, where nothing can be sent any more.
function _M.hand_over()
  close_batch()
  local lost = 0
  for k = 1, #pending do
    local entry = pending[k]
    if (dict:llen(QUEUE) or 0) >= MOST_HANDED or not dict:rpush(QUEUE, cjson.encode(entry)) then
      lost = lost + entry.size
    end
  end
  pending, records.waiting = {}, 0
  if lost > 0 then
    metrics.add("events_dropped", lost)
  end
end

--- @return number of records that wait in this worker
function _M.waiting()
  return records.waiting
end

return _M
