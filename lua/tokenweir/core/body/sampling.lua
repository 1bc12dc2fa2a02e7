--- The members of a request that shape its answer: sampling, stops, formats, reasoning switches. Read for prediction
-- only, so nothing is refused here: what cannot be understood counts as not given.
local ffi = require "ffi"
local bytes = require "tokenweir.core.bytes"
local fixed_array = require "tokenweir.core.fixed_array"
local shape = require "tokenweir.core.body.request_shape"

local max, min = math.max, math.min
local find_text, number = bytes.find_text, bytes.number
local value_of = require("tokenweir.core.json.number").value
local space_end = require("tokenweir.core.json.walk").space_end

local TAGS, LAST_STRICT = shape.TAGS, shape.LAST_STRICT
local QUOTE, COLON, MINUS, OPEN_OBJECT = 34, 58, 45, 123
local LOWER_E, LOWER_F, LOWER_N, LOWER_R, LOWER_T = 101, 102, 110, 114, 116
-- As `request.lua` has it.
local MAX_MEMBERS = 512

-- No figure is taken for more: `1e999` is a number too.
local MOST = require("tokenweir.contract").numbers.most_tokens

-- Of objects no more than this is looked through: the switches stand in small ones, schemas may be long.
local LOOK = 512

ffi.cdef [[
typedef struct {
  double temperature, top_p, stop, min_tokens, ignore_eos, logprobs, tool_choice, format;
  double effort, thinking, thinking_budget;
} tw_sampling;
]]

local _M = {}

local found = fixed_array.new("tw_sampling", 1)

--- The last request's (tw_sampling). `temperature`, `top_p`: -1 if not given. `stop`, `ignore_eos`, `logprobs`: 0 or 1.
-- `min_tokens`, `thinking_budget`: tokens, 0 if not given. `tool_choice`: 0 left to the model, 1 no tool, 2 some tool
-- or a certain one. `format`: 0 free, 1 some JSON, 2 a schema or grammar. `effort`: 0 not given, 1 none or minimal, 2
-- low, 3 medium, 4 high or more. `thinking`: -1 off, 0 not given, 1 on.
_M.found = found

local function is_number(c)
  return c >= 48 and c <= 57 or c == MINUS
end

-- The number in `[first, last)` of a checked body, or `default` for anything else.
local function number_of(p, first, last, default)
  return is_number(p[first]) and max(-MOST, min(value_of(p, first, last), MOST)) or default
end

-- The same of one that begins at `i`.
local function number_at(p, i, default)
  return is_number(p[i]) and max(-MOST, min(number(p + i), MOST)) or default
end

-- Where the value of the member `name` (with its quotes) of an object begins, -1 if it is not there.
local function value_in(p, first, last, name)
  local at = find_text(p, name, first, last)
  if at < 0 then
    return -1
  end
  at = space_end(p, at + #name)
  return p[at] == COLON and space_end(p, at + 1) or -1
end

-- "none", "minimal", "low", "medium", "high", "xhigh", "max"
local function effort_at(p, i)
  local c = p[i + 1]
  if p[i] ~= QUOTE then
    return 0
  elseif c == 110 or c == 109 and p[i + 2] == 105 then
    return 1
  elseif c == 108 then
    return 2
  elseif c == 109 and p[i + 2] == 101 then
    return 3
  elseif c == 104 or c == 120 or c == 109 then
    return 4
  end
  return 0
end

local function switch_at(p, i)
  local c = p[i]
  return c == LOWER_T and 1 or c == LOWER_F and -1 or 0
end

local function format_of(p, first, last)
  -- The type may stand behind the schema.
  if find_text(p, '"json_schema"', first, last) >= 0 or find_text(p, '"grammar"', first, last) >= 0 then
    return 2
  end
  return find_text(p, '"json_object"', first, last) >= 0 and 1 or 0
end

local function read_switches(p, first, last)
  local at = value_in(p, first, last, '"enable_thinking"')
  if at < 0 then
    at = value_in(p, first, last, '"thinking"')
  end
  found.thinking = at >= 0 and switch_at(p, at) or found.thinking
  at = value_in(p, first, last, '"thinking_budget"')
  found.thinking_budget = at >= 0 and number_at(p, at, 0) or found.thinking_budget
  at = value_in(p, first, last, '"reasoning_effort"')
  found.effort = at >= 0 and effort_at(p, at) or found.effort
end

local function read_reasoning(p, first, last)
  local at = value_in(p, first, last, '"effort"')
  found.effort = at >= 0 and effort_at(p, at) or found.effort
  at = value_in(p, first, last, '"max_tokens"')
  found.thinking_budget = at >= 0 and number_at(p, at, 0) or found.thinking_budget
  at = value_in(p, first, last, '"enabled"')
  found.thinking = at >= 0 and switch_at(p, at) or found.thinking
end

local function read_thinking(p, first, last)
  local at = value_in(p, first, last, '"type"')
  if at >= 0 then
    found.thinking = p[at + 1] == LOWER_E and 1 or -1
  else
    found.thinking = switch_at(p, first)
  end
  at = value_in(p, first, last, '"budget_tokens"')
  found.thinking_budget = at >= 0 and number_at(p, at, 0) or found.thinking_budget
end

local function tool_choice_of(p, first, c)
  if c == OPEN_OBJECT then
    return 2
  end
  local word = p[first + 1]
  return c == QUOTE and (word == LOWER_N and 1 or word == LOWER_R and 2) or 0
end

local function read_member(p, tag, first, last)
  local c = p[first]
  if c == LOWER_N then
    return  -- null
  elseif tag == TAGS.temperature then
    found.temperature = number_of(p, first, last, -1)
  elseif tag == TAGS.top_p then
    found.top_p = number_of(p, first, last, -1)
  elseif tag == TAGS.stop then
    found.stop = 1
  elseif tag == TAGS.min_tokens then
    found.min_tokens = number_of(p, first, last, 0)
  elseif tag == TAGS.ignore_eos then
    found.ignore_eos = c == LOWER_T and 1 or 0
  elseif tag == TAGS.logprobs then
    found.logprobs = c ~= LOWER_F and 1 or 0
  elseif tag == TAGS.tool_choice then
    found.tool_choice = tool_choice_of(p, first, c)
  elseif tag == TAGS.response_format or tag == TAGS.text then
    found.format = format_of(p, first, last)
  elseif tag >= TAGS.structured_outputs and tag <= TAGS.guided_grammar then
    found.format = 2
  elseif tag == TAGS.reasoning_effort then
    found.effort = effort_at(p, first)
  elseif tag == TAGS.enable_thinking then
    found.thinking = switch_at(p, first)
  elseif tag == TAGS.thinking_budget then
    found.thinking_budget = number_of(p, first, last, 0)
  elseif tag == TAGS.reasoning then
    read_reasoning(p, first, min(last, first + LOOK))
  elseif tag == TAGS.thinking then
    read_thinking(p, first, min(last, first + LOOK))
  elseif tag == TAGS.chat_template_kwargs then
    read_switches(p, first, min(last, first + LOOK))
  end
end

--- Reads a parsed request into `found`.
-- @param out of `request.parse`, with its body at hand
function _M.read(out)
  local p, tags = out.p, out.tags
  found.temperature, found.top_p, found.stop, found.min_tokens, found.ignore_eos = -1, -1, 0, 0, 0
  found.logprobs, found.tool_choice, found.format = 0, 0, 0
  found.effort, found.thinking, found.thinking_budget = 0, 0, 0
  for k = 1, min(out.members, MAX_MEMBERS) do
    local tag = tags[k]
    if tag > LAST_STRICT then
      read_member(p, tag, out.firsts[k], out.lasts[k])
    end
  end
  found.min_tokens, found.thinking_budget = max(found.min_tokens, 0), max(found.thinking_budget, 0)
end

return _M
