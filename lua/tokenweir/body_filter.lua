--- The body filter: counts what streams past, without changing a byte of it, and ends a stream that broke off.
local affinity = require "tokenweir.affinity"
local answer_bytes = require "tokenweir.answer_bytes"
local clock = require "tokenweir.clock"
local deadline = require "tokenweir.deadline"
local errors = require "tokenweir.errors"
local engine_error = require "tokenweir.core.answer.engine_error"
local ledger = require "tokenweir.ledger"
local passive_health = require "tokenweir.passive_health"
local sse = require "tokenweir.core.answer.sse"
local state = require "tokenweir.state"
local upstream_log = require "tokenweir.upstream_log"
local usage = require "tokenweir.core.answer.usage"

local ngx = ngx
local current = require("tokenweir.current_context").get
local arg = ngx.arg
local ffi_string = require("ffi").string
local min = math.min
local now_ms = clock.ms
local byte, note_success = passive_health.byte, passive_health.success
local first_token, progress = ledger.first_token, ledger.progress
local made, piece = affinity.made, answer_bytes.get
local feed_sse, feed_usage = sse.feed_bytes, usage.feed_bytes
local finish_sse, finish_usage = sse.finish, usage.finish

--- nginx leaves a timer as it is where it would move by less than this: NGX_TIMER_LAZY_DELAY.
local LAZY_MS = 300

local _M = {}

-- An engine's error says, in its body or in an event, whether it is out of memory.
local function look_into_error(r, p, size)
  r.engine_error = r.engine_error or engine_error.memory(ffi_string(p, min(size, engine_error.MOST))) or false
end

local function count(r, p, size, now)
  local stream = r.sse
  if not stream then
    if r.usage then
      feed_usage(r.usage, p, size)
    end
    return
  end
  local before = stream.events
  feed_sse(stream, p, size)
  if stream.error then
    look_into_error(r, p, size)
  end
  if stream.id and not r.response then
    r.response = stream.id
    made(r, stream.id, now)
  end
  if stream.events == before then
    return
  end
  if not r.first_token then
    r.first_token = now
    first_token(r)
    if r.probe then
      -- A backend on probation that produces has passed; a long answer's end need not be waited for.
      note_success(r.place, now)
    end
  end
  progress(r, stream.events * r.tokens_per_event)
end

-- Ends a stream with an event that says why; then the connection closes.
local function end_stream(r, status, code, message)
  r.code = code
  if r.sse and not r.sse.done then
    arg[1] = errors.event(status, code, message)
    arg[2] = true
  end
end

local function end_late(r)
  r.late = true
  return end_stream(r, 504, "deadline_exceeded", deadline.message(r))
end

-- ms of silence after which nginx's read time-out, and nothing else, ends an answer.
local function idle_of(now)
  return state.current(now).settings.limits.idle_ms - deadline.EARLY_MS - LAZY_MS
end

-- An empty chunk that is not the last: nginx flushes the head, or gives up on a backend in the middle of its answer.
local function look_for_break(r)
  if r.late or r.broken or r.silent or not upstream_log.over() then
    return
  end
  local now = now_ms()
  if deadline.reached(r, now) then
    return end_late(r)
  elseif r.first_byte and now - r.last_byte >= idle_of(now) then
    r.silent = true
    return end_stream(r, 504, "upstream_timeout", "The backend fell silent in the middle of its answer (limits.idle).")
  end
  r.broken = true
  return end_stream(r, 502, "upstream_broke", "The backend broke off in the middle of its answer.")
end

-- The answer is whole. What it told is read here and not in the log phase, which has no loop and is compiled as one.
local function finish(r)
  r.ended = true
  if r.sse then
    return finish_sse(r.sse)
  elseif r.usage then
    return finish_usage(r.usage)
  end
end

local function own_page(r)
  arg[1] = r.error_page
  arg[2] = true
  r.error_page = ""
end

--- Handles one chunk of any answer.
function _M.run()
  local r = current()
  if r.error_page then
    return own_page(r)
  elseif not r.header then
    return
  elseif r.late then
    return ngx.ERROR
  end
  local p, size, last = piece()
  if size == 0 then
    if last then
      return finish(r)
    end
    return look_for_break(r)
  end
  local now = now_ms()
  if r.first_byte then
    byte(r.place, now, now - r.last_byte)
  else
    r.first_byte = now
    byte(r.place, now)
  end
  r.last_byte = now
  if r.header >= 500 then
    look_into_error(r, p, size)
  end
  count(r, p, size, now)
  if last then
    return finish(r)
  elseif r.deadline and now > r.deadline then
    return end_late(r)
  end
end

return _M
