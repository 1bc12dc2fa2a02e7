--- Reads the plain parameters of a request (model, stream, counts and limits) from the members that were found.
local ffi = require "ffi"
local bytes = require "tokenweir.core.bytes"
local json_string = require "tokenweir.core.json.string"
local shape = require "tokenweir.core.body.request_shape"

local decode = json_string.decode_bytes
local floor, format = math.floor, string.format
local ffi_string = ffi.string
local find = bytes.find
local value_of = require("tokenweir.core.json.number").value

local NAMES, TAGS = shape.NAMES, shape.TAGS
local BEST_OF, INPUT, MESSAGES, MODEL = TAGS.best_of, TAGS.input, TAGS.messages, TAGS.model
local MAX_COMPLETION_TOKENS, MAX_OUTPUT_TOKENS = TAGS.max_completion_tokens, TAGS.max_output_tokens
local MAX_TOKENS, N, N_PREDICT, PROMPT, STREAM = TAGS.max_tokens, TAGS.n, TAGS.n_predict, TAGS.prompt, TAGS.stream
local QUOTE, BACKSLASH, OPEN_ARRAY = 34, 92, 91
local LOWER_F, LOWER_N, LOWER_T = 102, 110, 116

-- Doubles hold every whole number up to here.
local MAX_INTEGER = 2 ^ 53

local _M = {}

--- OpenAI's own limit of choices a request.
local MAX_N = 128
_M.MAX_N = MAX_N
--- Longest model name, in bytes as written.
local MAX_MODEL_BYTES = 1024
_M.MAX_MODEL_BYTES = MAX_MODEL_BYTES

local function refuse(out, code, message, name)
  out.error_code, out.error_message, out.error_param = code, message, name
  return false
end

local function wrong_type(out, tag, expected)
  return refuse(out, "invalid_type", format("'%s' must be %s.", NAMES[tag], expected), NAMES[tag])
end

-- Index of a member that is given and not null, else 0.
local function given(out, p, tag)
  local k = out.where[tag]
  if k > 0 and p[out.firsts[k]] == LOWER_N then
    return 0
  end
  return k
end

local function read_model(out, p)
  local k = given(out, p, MODEL)
  if k == 0 then
    return true
  end
  local first, last = out.firsts[k], out.lasts[k]
  if p[first] ~= QUOTE then
    return wrong_type(out, MODEL, "a string")
  end
  if last - first > MAX_MODEL_BYTES then
    return refuse(out, "invalid_value", format("'model' is longer than %d bytes.", MAX_MODEL_BYTES), "model")
  end
  first, last = first + 1, last - 1
  if find(p, BACKSLASH, first, last) < 0 then
    out.model = ffi_string(p + first, last - first)
    return true
  end
  local value, message, at = decode(p, first, last)
  if not value then
    return refuse(out, "invalid_json", format("Invalid JSON: %s at byte offset %d.", message, at), "model")
  end
  out.model = value
  return true
end

local function read_stream(out, p)
  local k = given(out, p, STREAM)
  if k == 0 then
    return true
  end
  local c = p[out.firsts[k]]
  if c ~= LOWER_T and c ~= LOWER_F then
    return wrong_type(out, STREAM, "true or false")
  end
  out.stream = c == LOWER_T
  return true
end

-- Whether the member is absent or a whole number within bounds; the number stands in out.value.
local function read_integer(out, p, tag, least, most)
  out.value = false
  local k = given(out, p, tag)
  if k == 0 then
    return true
  end
  local first = out.firsts[k]
  local c = p[first]
  local value = (c == 45 or c >= 48 and c <= 57) and value_of(p, first, out.lasts[k])
  if not value or value ~= floor(value) then
    return wrong_type(out, tag, "a whole number")
  end
  if value < least or value > most then
    local name = NAMES[tag]
    return refuse(out, "invalid_value", format("'%s' must be between %d and %.0f.", name, least, most), name)
  end
  out.value = value
  return true
end

-- -1 is llama.cpp's word for "no limit".
local function read_limit(out, p, tag)
  if not read_integer(out, p, tag, -1, MAX_INTEGER) then
    return false
  end
  local value = out.value
  if value and value >= 0 and not out.max_tokens then
    out.max_tokens, out.max_tokens_name = value, NAMES[tag]
  end
  return true
end

-- llama.cpp obeys `n_predict` before any other limit, and others do not know it: the one that allows more is reckoned
-- with. By itself it limits nothing for sure.
local function read_llama_limit(out, p)
  if not read_integer(out, p, N_PREDICT, -2, MAX_INTEGER) then
    return false
  end
  local value = out.value
  if value and value < 0 then
    out.max_tokens, out.max_tokens_name = false, false
  elseif value and out.max_tokens and value > out.max_tokens then
    out.max_tokens, out.max_tokens_name = value, NAMES[N_PREDICT]
  end
  return true
end

local function read_choices(out, p)
  if not read_integer(out, p, N, 1, MAX_N) then
    return false
  end
  out.n = out.value or 1
  if not read_integer(out, p, BEST_OF, 1, MAX_N) then
    return false
  end
  out.best_of = out.value
  return true
end

local function check_prompt(out, p, tag, string_too)
  local k = given(out, p, tag)
  if k == 0 then
    return true
  end
  local c = p[out.firsts[k]]
  if c == OPEN_ARRAY or string_too and c == QUOTE then
    return true
  end
  return wrong_type(out, tag, string_too and "a string or an array" or "an array")
end

--- Fills `model`, `stream`, `n`, `best_of`, `max_tokens` and `max_tokens_name` (the member that gave it; where chat has
-- both, `max_completion_tokens` goes before `max_tokens`, as in the engines) and checks the prompt's type.
-- @treturn boolean false: `out.error_code`, `out.error_message`, `out.error_param` say why
function _M.read(out, p)
  return read_model(out, p)
    and read_stream(out, p)
    and read_choices(out, p)
    and read_limit(out, p, MAX_COMPLETION_TOKENS)
    and read_limit(out, p, MAX_OUTPUT_TOKENS)
    and read_limit(out, p, MAX_TOKENS)
    and read_llama_limit(out, p)
    and check_prompt(out, p, MESSAGES, false)
    and check_prompt(out, p, PROMPT, true)
    and check_prompt(out, p, INPUT, true)
end

return _M
