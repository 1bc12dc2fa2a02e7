--- The figures that `sse` tells of a stream, from an answer that is one JSON object.
--
--     local state = usage.new()
--     usage.feed(state, chunk)    -- for each chunk
--     usage.finish(state)         -- completion_tokens, prompt_tokens, cached_tokens, finish_reason, error
--
-- An answer may be megabytes (embeddings, log probabilities), so only its two ends are kept: engines write `usage`
-- behind the output. Of most answers only what follows the output is read; a short one that is not written so is read
-- whole; of a longer one the beginning is read as far as it goes, and the usage at the end counts if it is a member of
-- the outermost object. How the answer was cut does not matter.
local answer = require "tokenweir.core.answer.answer"
local bytes = require "tokenweir.core.bytes"
local ending = require "tokenweir.core.answer.ending"
local fixed_table = require "tokenweir.core.fixed_table"
local json = require "tokenweir.core.json.walk"
local line_buffer = require "tokenweir.core.line_buffer"
local string_end = require("tokenweir.core.json.quote").string_end

local append, clear_buffer = line_buffer.append, line_buffer.clear
local clear_answer, read, settle, take_finish = answer.clear, answer.read, answer.settle, answer.finish
local learn_ending, read_ending = ending.learn, ending.read
local find_last, find_text, of = bytes.find_last, bytes.find_text, bytes.of
local space_end, skip = json.space_end, json.skip
local ffi_string = require("ffi").string
local max = math.max
local sub = string.sub

local QUOTE, COLON, LESS_THAN, OPEN_OBJECT, CLOSE_OBJECT = 34, 58, 60, 123, 125

local _M = {}

-- How far before the end of an answer its usage is looked for, and before that its finish reason.
local USAGE_WITHIN, REASON_WITHIN = 1024, 256

--- Bytes kept of the beginning of a long answer, and of the end; one that fits the latter is read whole.
local HEAD, TAIL = 4096, 32768
_M.HEAD, _M.TAIL = HEAD, TAIL

-- The end of the answer, put together. One for all: `finish` does not yield.
local tail = line_buffer.new()

--- Makes a state ready for another answer.
function _M.reset(state)
  clear_answer(state)
  state.size, state.kept = 0, 0
  clear_buffer(state.head)
  local chunks = state.chunks
  for k = state.first_chunk, state.last_chunk do
    chunks[k] = nil
  end
  state.first_chunk, state.last_chunk = 1, 0
end

local MEMBERS = { "head", "chunks", "first_chunk", "last_chunk", "size", "kept" }

--- A state for one answer.
function _M.new()
  local state = fixed_table.new(MEMBERS, answer.MEMBERS)
  state.head, state.chunks, state.first_chunk, state.last_chunk = line_buffer.new(), {}, 1, 0
  _M.reset(state)
  return state
end

-- Of an answer that `head` cannot take the chunks are kept, and of those in front of the end only what is needed.
local function keep(state, before, p, n)
  local chunks = state.chunks
  if state.last_chunk == 0 and before > 0 then
    -- Until now `head` had it all.
    chunks[1], state.last_chunk, state.kept = ffi_string(state.head.p, before), 1, before
  end
  state.last_chunk, state.kept = state.last_chunk + 1, state.kept + n
  chunks[state.last_chunk] = ffi_string(p, n)
  local oldest = #chunks[state.first_chunk]
  while state.kept - oldest >= TAIL do
    chunks[state.first_chunk] = nil
    state.kept = state.kept - oldest
    state.first_chunk = state.first_chunk + 1
    oldest = #chunks[state.first_chunk]
  end
end

--- Takes the next chunk.
-- @param p const uint8_t *, needed until the function returns
-- @tparam number n its size
function _M.feed_bytes(state, p, n)
  if n == 0 then
    return
  end
  local before, head = state.size, state.head
  local wanted = HEAD - head.size
  if wanted > 0 then
    append(head, p, n < wanted and n or wanted)
  end
  state.size = before + n
  if state.size > HEAD then
    keep(state, before, p, n)
  end
end

--- The same of a Lua string.
function _M.feed(state, chunk)
  -- No tail call: the string is to be referenced until its bytes are read.
  _M.feed_bytes(state, of(chunk), #chunk)
end

local function join(state)
  clear_buffer(tail)
  local surplus = state.kept - TAIL
  for k = state.first_chunk, state.last_chunk do
    local chunk = state.chunks[k]
    if surplus > 0 then
      chunk = sub(chunk, surplus + 1)
      surplus = 0
    end
    append(tail, chunk, #chunk)
  end
end

-- Reads what may be the beginning of an object only. A number that is cut would read as a smaller one.
local function read_beginning(state, buffer)
  local p, size = buffer.p, buffer.size
  while size > 0 and p[size - 1] >= 48 and p[size - 1] <= 57 do
    size = size - 1
  end
  p[size] = 0
  read(state, p, 0, size)
end

-- The offset of the value of the last member of this name, or nil. Inside a JSON string its quotes would be escaped.
local function last_value(name)
  local p = tail.p
  local at = find_last(p, name, tail.size)
  if at < 0 then
    return nil
  end
  local i = space_end(p, at + #name)
  if p[i] ~= COLON then
    return nil
  end
  return space_end(p, i + 1), at
end

local function read_tail(state)
  local p, size = tail.p, tail.size
  if not state.finish_reason then
    local value = last_value '"finish_reason"'
    if value and p[value] == QUOTE then
      local last = string_end(p, value + 1, size)
      if last >= 0 then
        take_finish(state, p, value + 1, last)
      end
    end
  end
  local _, at = last_value '"usage"'
  if at and at > 0 then
    -- From here on, the rest of the outermost object reads as an object of its own; inside another one it would not end
    -- where the answer ends.
    p[at - 1] = OPEN_OBJECT
    if skip(p, at - 1, size) == size then
      read(state, p, at - 1, size)
    end
  end
end

-- Reads of a whole answer what stands from the usage on, and the finish reason just before it: engines write both
-- behind the output, and the output is most of what there is to read.
-- @return boolean, false where it is not written so
local function read_end(state, p, size)
  local at = find_text(p, '"usage"', max(0, size - USAGE_WITHIN), size)
  if at < 1 then
    return false
  end
  local reason = find_text(p, '"finish_reason"', max(0, at - REASON_WITHIN), at)
  if reason < 0 then
    return false
  end
  local value = space_end(p, reason + 15)
  value = p[value] == COLON and space_end(p, value + 1) or 0
  local last = p[value] == QUOTE and string_end(p, value + 1, size) or -1
  -- Of several choices the last one's counts.
  if last < 0 or find_text(p, '"finish_reason"', last, at) >= 0 then
    return false
  end
  clear_buffer(tail)
  append(tail, p + at - 1, size - at + 1)
  tail.p[0] = OPEN_OBJECT
  if read(state, tail.p, 0, tail.size) ~= tail.size then
    clear_answer(state)
    return false
  end
  take_finish(state, p, value + 1, last)
  learn_ending(p, reason, value, last, at, size)
  return true
end

--- Whether the answer begins as a page of HTML does.
function _M.is_page(state)
  local head = state.head
  -- Behind what `head` holds stands a NUL.
  return head.size > 0 and head.p[space_end(head.p, 0)] == LESS_THAN
end

-- Where an answer that came in one piece, or that `head` has, stands as a whole; nil of any other.
local function whole(state)
  if state.last_chunk == 0 then
    return state.head.p
  elseif state.first_chunk == state.last_chunk and state.size <= TAIL then
    return of(state.chunks[state.last_chunk])
  end
end

--- Takes the end of the answer.
function _M.finish(state)
  local size = state.size
  if size == 0 then
    return
  end
  local p = whole(state)
  if p and p[size - 1] == CLOSE_OBJECT then
    -- Most answers are complete and not long. One of the responses API tells more at its beginning.
    local is_known = not state.wants_id and (read_ending(state, p, size) or read_end(state, p, size))
    if not is_known then
      read(state, p, 0, size)
    end
    return settle(state)
  end
  if state.last_chunk == 0 then
    read_beginning(state, state.head)
    return settle(state)
  end
  join(state)
  if size <= TAIL then
    read_beginning(state, tail)
  else
    read_beginning(state, state.head)
    read_tail(state)
  end
  settle(state)
end

return _M
