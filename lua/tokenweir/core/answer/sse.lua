--- Counts what a stream of server-sent events carries while its chunks pass, without decoding or changing them.
--
--     local state = sse.new()
--     sse.feed(state, chunk)      -- for each chunk
--     sse.finish(state)           -- at the end
--
-- The figures do not depend on how the stream was cut into chunks. Lines end in LF, CR or CRLF; several `data` lines
-- make one event. The state:
--
--   * `events`: data events that carry output (`answer` says which); `data_events`: all but `[DONE]`
--   * `first`: whether output was seen; `done`: `[DONE]` or the last event of the responses API was seen
--   * `completion_tokens`, `prompt_tokens`, `cached_tokens`: the last usage told, or false
--   * `finish_reason`: the last one told, or false; `error`: whether an event was an error
--
-- An event that differs from an earlier one only in its output string is recognised by its bytes, and needs no parse:
-- engines send hundreds of them a stream.
local answer = require "tokenweir.core.answer.answer"
local bytes = require "tokenweir.core.bytes"
local fixed_table = require "tokenweir.core.fixed_table"
local line_buffer = require "tokenweir.core.line_buffer"
local string_end = require("tokenweir.core.json.quote").string_end

local find, same, of = bytes.find, bytes.same, bytes.of
local clear_answer, read, settle = answer.clear, answer.read, answer.settle

local LF, CR, SPACE = 10, 13, 32
local LOWER_D, LOWER_E = 100, 101

local _M = {}

--- Makes a state ready for another stream.
function _M.reset(state)
  clear_answer(state)
  state.events, state.data_events, state.first = 0, 0, false
  -- Of the event that is being read: whether it had data, and whether it is named an error.
  state.in_event, state.named_error = false, false
  state.after_cr = false
  state.pending:clear()
  state.joined:clear()
  state.template:clear()
  state.head, state.tail = 0, 0
end

local MEMBERS = {
  "events", "data_events", "first", "in_event", "named_error", "after_cr", "pending", "joined", "template", "head",
  "tail",
}

--- A state for one stream.
-- @treturn table
function _M.new()
  local state = fixed_table.new(MEMBERS, answer.MEMBERS)
  -- The beginning of a line whose end has not come.
  state.pending = line_buffer.new()
  -- Data lines of an event whose JSON goes on in the next line.
  state.joined = line_buffer.new()
  -- The data that was parsed last. Where it told nothing but one output string, its first `head` and last `tail` bytes
  -- are what stands around that string; else `head` is 0.
  state.template = line_buffer.new()
  _M.reset(state)
  return state
end

local function output(state)
  state.events = state.events + 1
  state.first = true
end

-- Whether the data in [a, b) is the template with another output string; counts it if so.
local function matches(state, p, a, b, n)
  local head, tail, template = state.head, state.tail, state.template
  if head == 0 or b - a < head + tail or not same(p + a, template.p, head) then
    return false
  end
  local quote = string_end(p, a + head, n)
  if quote + tail ~= b or not same(p + quote, template.p + (template.size - tail), tail) then
    return false
  end
  if quote > a + head then
    output(state)
  end
  return true
end

-- Counts the data in [a, b). False when it is not one whole JSON value.
local function evaluate(state, p, a, b, n)
  if matches(state, p, a, b, n) then
    return true
  end
  -- The copy ends in a NUL, so the parse sees the same bytes whatever stands behind the line in this chunk.
  local template = state.template
  state.head = 0
  template:clear()
  template:append(p + a, b - a)
  if template.overflowed then
    return true
  end
  if read(state, template.p, 0, template.size) ~= template.size then
    return false
  end
  if state.has_output then
    output(state)
  end
  if state.plain and state.outputs == 1 then
    state.head, state.tail = state.output_first, template.size - state.output_last
  end
  return true
end

local function end_event(state)
  local joined = state.joined
  if joined.size > 0 then
    evaluate(state, joined.p, 0, joined.size, joined.size)
    joined:clear()
  end
  state.in_event, state.named_error = false, false
end

local function data_line(state, p, a, b, n)
  local joined = state.joined
  if state.in_event then
    if joined.size > 0 then
      joined:append("\n", 1)
      joined:append(p + a, b - a)
    end
    return
  end
  state.in_event = true
  if b - a == 6 and same(p + a, "[DONE]", 6) then
    state.done = true
    return
  end
  state.data_events = state.data_events + 1
  if state.named_error then
    state.error = true
  end
  if b > a and not evaluate(state, p, a, b, n) then
    joined:append(p + a, b - a)
  end
end

-- The line in [a, b) of `p`, which is readable in [0, n].
local function line(state, p, a, b, n)
  if a == b then
    return end_event(state)
  end
  local c = p[a]
  if c == LOWER_D then
    if b - a >= 5 and same(p + a, "data:", 5) then
      a = a + 5
      if a < b and p[a] == SPACE then
        a = a + 1
      end
      return data_line(state, p, a, b, n)
    end
  elseif c == LOWER_E and b - a >= 6 then
    if same(p + a, "event:", 6) then
      a = a + 6
      if a < b and p[a] == SPACE then
        a = a + 1
      end
      if b - a == 5 and same(p + a, "error", 5) then
        state.named_error = true
        state.error = state.error or state.in_event
      end
    elseif same(p + a, "error:", 6) then
      -- llama.cpp's older servers name the field so.
      state.error = true
    end
  end
end

-- A line of which the beginning had been kept.
local function kept_line(state)
  local pending = state.pending
  if not pending.overflowed then
    line(state, pending.p, 0, pending.size, pending.size)
  elseif not state.in_event then
    -- Too long to look at; only data can be.
    state.in_event = true
    state.data_events = state.data_events + 1
  end
  pending:clear()
end

-- Takes one whole event that is a single data line ended by LF, as engines send it, without a loop (one of a round or
-- two would not be compiled). Returns the index behind it, or -1 when what begins at `i` is anything else.
local function whole_event(state, p, i, n)
  if state.in_event or state.named_error or n - i < 6 or not same(p + i, "data:", 5) then
    return -1
  end
  local a = p[i + 5] == SPACE and i + 6 or i + 5
  local head, tail, template = state.head, state.tail, state.template
  if head > 0 and n - a >= head + tail + 2 and same(p + a, template.p, head) then
    local quote = string_end(p, a + head, n)
    local b = quote + tail
    if quote >= 0 and b + 2 <= n and p[b] == LF and p[b + 1] == LF
      and same(p + quote, template.p + (template.size - tail), tail)
      and find(p, LF, a + head, quote) < 0 and find(p, CR, a + head, quote) < 0 then
      state.data_events = state.data_events + 1
      if quote > a + head then
        output(state)
      end
      return b + 2
    end
  end
  local b = find(p, LF, a, n)
  if b < 0 or b + 1 == n or p[b + 1] ~= LF or find(p, CR, a, b) >= 0 then
    return -1
  end
  data_line(state, p, a, b, n)
  end_event(state)
  return b + 2
end

-- The part of a chunk from `i` on, line by line.
local function feed_lines(state, p, i, n)
  local pending = state.pending
  -- The next LF and CR at or after i; n when there is none.
  local lf, cr = -1, -1
  while i < n do
    if lf < i then
      lf = find(p, LF, i, n)
      if lf < 0 then lf = n end
    end
    if cr < i then
      cr = find(p, CR, i, n)
      if cr < 0 then cr = n end
    end
    local stop = lf < cr and lf or cr
    if stop == n then
      pending:append(p + i, n - i)
      return
    end
    if pending.size > 0 or pending.overflowed then
      pending:append(p + i, stop - i)
      kept_line(state)
    else
      line(state, p, i, stop, n)
    end
    i = stop + 1
    if stop == cr then
      if i == n then
        state.after_cr = true
      elseif lf == i then
        i = i + 1
      end
    end
    local after = whole_event(state, p, i, n)
    if after > 0 then
      i = after
    end
  end
end

--- Takes the next chunk of the stream.
-- @tparam table state
-- @param p const uint8_t *, readable in [0, n] with p[n] == 0; needed until the function returns
-- @tparam number n its size: any cut of the stream
function _M.feed_bytes(state, p, n)
  if n == 0 then
    return
  end
  local i = 0
  if state.after_cr then
    state.after_cr = false
    if p[0] == LF then
      i = 1
    end
  end
  if state.pending.size == 0 and not state.pending.overflowed then
    local after = whole_event(state, p, i, n)
    if after == n then
      return
    elseif after > 0 then
      i = after
    end
  end
  feed_lines(state, p, i, n)
end

--- The same of a Lua string.
function _M.feed(state, chunk)
  -- No tail call: the string is to be referenced until its bytes are read.
  _M.feed_bytes(state, of(chunk), #chunk)
end

--- Takes the end of the stream: a last line without an end counts, and llama.cpp's timings stand in for absent usage.
function _M.finish(state)
  if state.pending.size > 0 or state.pending.overflowed then
    kept_line(state)
  end
  end_event(state)
  settle(state)
end

return _M
