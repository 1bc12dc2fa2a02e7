--- What one JSON object of an engine's answer says: an event of a stream, or a whole answer that is not streamed.
--
-- Read in one pass, by the names of OpenAI's chat completions, completions and responses, with what vLLM, SGLang and
-- llama.cpp add, and the usage of Anthropic's messages. An object carries output when one of these is a string that is
-- not empty:
--
--   * `choices[].delta.` (or `message.`) `content`, `reasoning_content`, `reasoning`, `refusal`
--   * `choices[].delta.tool_calls[].function.` `name` or `arguments`, and the same under `function_call`
--   * `choices[].text`
--   * `delta` at the top, as in the events `response.*.delta`
--
-- A first event that only names the role, a last one that only gives the finish reason or the usage, carry none.
local ffi = require "ffi"
local fresh = require "tokenweir.core.fresh"
local bytes = require "tokenweir.core.bytes"
local json = fresh.load "tokenweir.core.json.walk"
local nodes = require "tokenweir.core.json.node"

local ffi_string = ffi.string
local number, same = bytes.number, bytes.same
local node, NOTHING, walk, ALL = nodes.new, nodes.NOTHING, json.walk, json.ALL

local OUTPUT, FINISH, KIND, STATUS, OBJECT, ERROR, REASON = 1, 2, 3, 4, 5, 6, 7
local COMPLETION_TOKENS, PROMPT_TOKENS, CACHED_TOKENS = 8, 9, 10
local PROCESSED, PREDICTED, REUSED = 11, 12, 13
local ID = 14

-- Figures are counts; a wrong one must not poison sums.
local MAX_COUNT = require("tokenweir.contract").numbers.most_tokens
local MAX_WORD = 64
local MAX_ID = 256

local _M = {}

local function text(code)
  return node { code = code, string = true }
end

local function figure(code)
  return node { code = code, number = true }
end

local function object(children)
  return node { children = nodes.members(children), other = NOTHING }
end

local output = text(OUTPUT)
-- Some engines give content as a list of parts.
local content = node { code = OUTPUT, string = true, each = object { text = output } }
local call = object { name = output, arguments = output }
local delta_members = {
  content = content, reasoning_content = output, reasoning = output, refusal = output,
  tool_calls = node { each = object { ["function"] = call } }, function_call = call,
}
local choice = object {
  delta = object(delta_members), message = object(delta_members), text = output, finish_reason = text(FINISH),
}
local cached = object { cached_tokens = figure(CACHED_TOKENS) }
local usage = object {
  prompt_tokens = figure(PROMPT_TOKENS), input_tokens = figure(PROMPT_TOKENS),
  completion_tokens = figure(COMPLETION_TOKENS), output_tokens = figure(COMPLETION_TOKENS),
  prompt_tokens_details = cached, input_tokens_details = cached,
}
-- llama.cpp: `prompt_n` leaves out what its cache held.
local timings = object { prompt_n = figure(PROCESSED), predicted_n = figure(PREDICTED), cache_n = figure(REUSED) }
local failure = node { code = ERROR, string = true, open = true }
local incomplete = object { reason = text(REASON) }
local response = object {
  usage = usage, status = text(STATUS), error = failure, incomplete_details = incomplete, id = text(ID),
}

local ROOT = object {
  choices = node { each = choice },
  usage = usage, timings = timings, error = failure,
  type = text(KIND), object = text(OBJECT), delta = output,
  response = response,
  -- Anthropic's streams tell the prompt's tokens as they begin.
  message = object { usage = usage },
  -- An answer of the responses API that is not streamed is itself such an object.
  status = text(STATUS), incomplete_details = incomplete, id = text(ID),
}

--- What is read of an answer, and the codes of its figures there; see `ending.lua`.
_M.ROOT, _M.COMPLETION_TOKENS = ROOT, COMPLETION_TOKENS
_M.PROMPT_TOKENS, _M.CACHED_TOKENS = PROMPT_TOKENS, CACHED_TOKENS

local on = {}

local function is(p, first, last, word)
  return last - first == #word and same(p + first, word, #word)
end

--- Takes a finish reason if it is a word as engines send ("stop", "tool_calls"): it goes into records and logs, so an
-- engine must not write what it likes there.
function _M.finish(state, p, first, last)
  if last == first or last - first > MAX_WORD then
    return
  elseif is(p, first, last, "stop") then
    state.finish_reason = "stop"
    return
  end
  for k = first, last - 1 do
    local c = p[k]
    local letter = c >= 97 and c <= 122 or c >= 65 and c <= 90
    if not letter and not (c >= 48 and c <= 57) and c ~= 95 and c ~= 45 then
      return
    end
  end
  state.finish_reason = ffi_string(p + first, last - first)
end
local finish = _M.finish

function on.string(state, at, p, first, last)
  local code = at.code
  if code == OUTPUT then
    state.outputs = state.outputs + 1
    state.output_first, state.output_last = first, last
    if last > first then
      state.has_output = true
    end
    return
  elseif code == ID then
    -- The same in every event of a stream, so it keeps none from being recognised by its bytes.
    if state.wants_id and not state.id and last - first <= MAX_ID then
      state.id = ffi_string(p + first, last - first)
    end
    return
  elseif code == KIND or code == OBJECT then
    if is(p, first, last, "error") then
      state.error = true
    elseif is(p, first, last, "response.completed") or is(p, first, last, "response.incomplete") then
      state.done = true
    elseif is(p, first, last, "response.failed") then
      state.done, state.error = true, true
    else
      -- The kind of an event decides nothing else, so an equal one can be recognised by its bytes.
      return
    end
  elseif code == FINISH then
    finish(state, p, first, last)
  elseif code == REASON then
    if is(p, first, last, "max_output_tokens") then
      state.finish_reason = "length"
    else
      finish(state, p, first, last)
    end
  elseif code == STATUS then
    if is(p, first, last, "completed") then
      state.finish_reason = "stop"
    elseif is(p, first, last, "failed") then
      state.error = true
    end
  elseif code == ERROR then
    state.error = true
  end
  state.plain = false
end

function on.open(state)
  state.error, state.plain = true, false
end

function on.number(state, at, p, first)
  local value = number(p + first)
  state.plain = false
  if value < 0 or value > MAX_COUNT or value % 1 ~= 0 then
    return
  end
  local code = at.code
  if code == COMPLETION_TOKENS then
    state.completion_tokens = value
  elseif code == PROMPT_TOKENS then
    state.prompt_tokens = value
  elseif code == CACHED_TOKENS then
    state.cached_tokens = value
  elseif code == PROCESSED then
    state.timings_processed = value
  elseif code == PREDICTED then
    state.timings_predicted = value
  elseif code == REUSED then
    state.timings_cached = value
  end
end

--- What `read` and `settle` set.
_M.MEMBERS = {
  "completion_tokens", "prompt_tokens", "cached_tokens", "timings_processed", "timings_predicted", "timings_cached",
  "finish_reason", "id", "wants_id", "done", "error", "has_output", "outputs", "plain", "output_first", "output_last",
}

--- Clears what is known of an answer. What it does not tell is false.
function _M.clear(state)
  state.completion_tokens, state.prompt_tokens, state.cached_tokens = false, false, false
  state.timings_processed, state.timings_predicted, state.timings_cached = false, false, false
  state.finish_reason, state.id, state.wants_id = false, false, false
  state.done, state.error = false, false
  state.has_output, state.outputs, state.plain = false, 0, true
  state.output_first, state.output_last = 0, 0
end

--- Reads the object at `i`. Sets, where the object tells them, `completion_tokens`, `prompt_tokens`, `cached_tokens`,
-- `finish_reason`, `done`, `error`, the `timings_*`, and, where `wants_id` was set, the answer's `id`;
-- and of this object alone `has_output`, `outputs` (output strings, empty ones too), `output_first`, `output_last` (the
-- last one's span), `plain` (it told nothing but output).
-- @treturn number the offset after it; or nil, what is wrong, its offset
function _M.read(state, p, i, n)
  state.has_output, state.outputs, state.plain = false, 0, true
  return walk(p, i, n, ROOT, on, state, false, ALL)
end

--- Fills from llama.cpp's timings what `usage` did not tell.
function _M.settle(state)
  if state.timings_processed then
    state.cached_tokens = state.cached_tokens or state.timings_cached
    state.prompt_tokens = state.prompt_tokens or state.timings_processed + (state.timings_cached or 0)
  end
  state.completion_tokens = state.completion_tokens or state.timings_predicted
  if state.cached_tokens and state.prompt_tokens and state.cached_tokens > state.prompt_tokens then
    state.cached_tokens = state.prompt_tokens
  end
end

return _M
