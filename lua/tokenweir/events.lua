--- Completion records on their way to Redis: a bounded buffer in this worker, written in batches from a timer.
--
--   local record = events.record()        -- in log_by_lua; nil when the buffer is full (counted)
--   if record then record.id = ...; record.model = ... end   -- every member of the contract's Completion that is known
--
-- A batch carries its source and how many records that source made before, those dropped included: the reader sees a
-- gap as a loss and an overlap as a batch that was sent twice. While Redis is away records wait; beyond the bound new
-- ones are dropped and counted. A worker that exits hands what is left to the others. Lost without being counted here:
-- the last tenth of a second of a worker that is killed, or of a gateway that is stopped at once (SIGTERM).
local cjson = require "cjson.safe"
local clock = require "tokenweir.core.clock"
local config = require "tokenweir.config"
local contract = require "tokenweir.contract"
local metrics = require "tokenweir.metrics"
local record_json = require "tokenweir.core.record_json"
local redis = require "tokenweir.redis"
local clear = require "table.clear"
local new_table = require "table.new"

local dict = ngx.shared.tokenweir_documents
local exiting = ngx.worker.exiting
local floor, min = math.floor, math.min
local now_wall = ngx.now

local CAPACITY = 8192
local BATCH = 256
local BATCHES = 16              -- of one pipeline
local MEMBERS = 32
local QUEUE = "events"
local MOST_HANDED = 4096        -- batches that wait in the dict
local BACK_OFF_MS = 1000

local KEY, CAP, FIELDS = contract.keys.completions, contract.numbers.completions_cap, contract.fields

local _M = { CAPACITY = CAPACITY }

-- A ring: records[(tail + k) % CAPACITY], k = 0 .. count - 1; numbers: how many this worker had made before each.
local records, numbers = {}, {}
local tail, count, made = 0, 0, 0
local pending = {}              -- encoded batches not yet confirmed: { source, first, batch, size }
local source
local flushing, flush_due = false, false
local retry_at, failures = 0, 0

local function source_name()
  source = source or config.current.gateway_id .. ":" .. ngx.worker.pid() .. ":" .. floor(now_wall() * 1000)
  return source
end

local function flush_in_timer(premature)
  flush_due = false
  _M.flush(clock.ms(), premature)
end

--- A table to be filled at once (without yielding) with the members of a `Completion`; `gateway` and `time_ms` are set.
-- @return table, valid until the phase ends; or nil if the buffer is full
function _M.record()
  made = made + 1
  if count >= CAPACITY then
    metrics.add("events_dropped", 1)
    return nil
  end
  local at = (tail + count) % CAPACITY
  local record = records[at]
  if record then
    clear(record)
  else
    record = new_table(0, MEMBERS)
    records[at] = record
  end
  numbers[at] = made - 1
  count = count + 1
  record.gateway, record.time_ms = config.current.gateway_id, floor(now_wall() * 1000)
  -- Timers have stopped in a worker that drains, but one without a delay still runs.
  if not flush_due and exiting() then
    flush_due = ngx.timer.at(0, flush_in_timer) and true or false
  end
  return record
end

local list = new_table(BATCH, 0)

--- Encodes the oldest records whose numbers follow each other.
local function encode_batch()
  local first, size = numbers[tail], 0
  while size < BATCH and size < count do
    local at = (tail + size) % CAPACITY
    if numbers[at] ~= first + size then
      break
    end
    size = size + 1
    list[size] = records[at]
  end
  pending[#pending + 1] = {
    source = source_name(), first = first, batch = record_json.encode(list, size), size = size,
  }
  tail, count = (tail + size) % CAPACITY, count - size
  if count == 0 then
    tail = 0  -- the same few tables again, which the processor still has at hand
  end
end

local function adopt_handed()
  local text = dict:lpop(QUEUE)
  local entry = text and cjson.decode(text)
  if entry then
    pending[#pending + 1] = entry
  end
  return entry ~= nil
end

local function prepare()
  while #pending < BATCHES and adopt_handed() do end
  while #pending < BATCHES and count > 0 do
    encode_batch()
  end
end

local function send(connection)
  local commands = {}
  for k = 1, min(#pending, BATCHES) do
    local entry = pending[k]
    commands[k] = {
      "XADD", KEY, "MAXLEN", "~", CAP, "*", FIELDS.batch, entry.batch, FIELDS.source, entry.source,
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
  until count == 0 and #pending == 0
  connection:keep()
  return true
end

--- Writes what waits; from a timer.
-- @param at_once boolean, without regard to the back-off
-- @return true, or nil, err
function _M.flush(now, at_once)
  if flushing or (not at_once and now < retry_at) or (count == 0 and #pending == 0 and dict:llen(QUEUE) == 0) then
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
  while count > 0 do
    encode_batch()
  end
  local lost = 0
  for k = 1, #pending do
    local entry = pending[k]
    if (dict:llen(QUEUE) or 0) >= MOST_HANDED or not dict:rpush(QUEUE, cjson.encode(entry)) then
      lost = lost + entry.size
    end
  end
  pending = {}
  if lost > 0 then
    metrics.add("events_dropped", lost)
  end
end

--- @return number of records that wait in this worker
function _M.waiting()
  local sum = count
  for k = 1, #pending do
    sum = sum + pending[k].size
  end
  return sum
end

return _M
