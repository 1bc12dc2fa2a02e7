--- Burst mode: what is changed in a request's body so that its answer is short. `logprobs` and `top_logprobs` go; the
-- limit of output tokens is brought down wherever it stands, and set where there is none.
local ffi = require "ffi"
local splice = require "tokenweir.core.json.splice"

local ffi_string = ffi.string
local format, tonumber = string.format, tonumber

local LOWER_F, LOWER_N = 102, 110

--- By kind of request: the members that limit its output, and the one that is set where none is given.
local LIMITS = {
  chat = { max_tokens = true, max_completion_tokens = true },
  completions = { max_tokens = true },
  responses = { max_output_tokens = true },
}
local DEFAULT = { chat = "max_tokens", completions = "max_tokens", responses = "max_output_tokens" }
--- llama.cpp obeys it before these; to other engines it is no limit.
local LLAMA = "n_predict"
--- vLLM refuses a request whose least output is above its most.
local LEAST = "min_tokens"
local REMOVED = { logprobs = true, top_logprobs = true }

local _M = { NUMBERS = { max_tokens = true, max_completion_tokens = true, max_output_tokens = true,
  [LLAMA] = true, [LEAST] = true } }

--- Whether requests of this kind have an output to be kept short.
function _M.applies(kind)
  return LIMITS[kind] ~= nil
end

-- The number that member k holds; nil where it is none (null, or a body in a file that was not told).
local function number_of(parsed, k)
  if parsed.p then
    return tonumber(ffi_string(parsed.p + parsed.firsts[k], parsed.lasts[k] - parsed.firsts[k]))
  end
  return parsed.found and parsed.found.numbers[k]
end

local function exceeds(value, limit)
  return not value or value < 0 or value > limit
end

-- Of a member given twice the last one counts (`splice.agree` makes the others say the same).
local function counting(parsed, k)
  local name = parsed.names[k]
  for j = parsed.members, k + 1, -1 do
    if parsed.names[j] == name then
      return j
    end
  end
  return k
end

-- Whether a member to be removed does anything: false and null do not.
local function is_off(parsed, k)
  local c = parsed.p and parsed.p[parsed.firsts[k]]
  return c == LOWER_F or c == LOWER_N
end

--- Whether the request asks for more than burst mode gives.
-- @param parsed what `request.parse` filled, of a kind to which it applies
-- @param limit most output tokens
function _M.degrades(parsed, limit)
  local limits, limited = LIMITS[parsed.kind], false
  for k = 1, parsed.members do
    local name = parsed.names[k]
    if limits[name] then
      if exceeds(number_of(parsed, counting(parsed, k)), limit) then
        return true
      end
      limited = true
    elseif name == LLAMA and exceeds(number_of(parsed, counting(parsed, k)), limit) then
      return true
    elseif REMOVED[name] and not is_off(parsed, k) then
      return true
    end
  end
  return not limited
end

local function set(edits, parsed, k, text)
  local at = #edits
  edits[at + 1], edits[at + 2], edits[at + 3] = parsed.firsts[k] + 1, parsed.lasts[k], text
end

--- Adds the edits to `edits` (see `splice.lua`), before all others.
function _M.edit(edits, parsed, limit)
  local limits, limited, text = LIMITS[parsed.kind], false, format("%d", limit)
  for k = 1, parsed.members do
    local name = parsed.names[k]
    if limits[name] then
      limited = true
      if exceeds(number_of(parsed, counting(parsed, k)), limit) then
        set(edits, parsed, k, text)
      end
    elseif name == LEAST and (number_of(parsed, k) or 0) > limit
      or name == LLAMA and exceeds(number_of(parsed, counting(parsed, k)), limit)
    then
      set(edits, parsed, k, text)
    end
  end
  splice.remove_members(edits, parsed, REMOVED, is_off)
  if not limited then
    splice.insert_member(edits, parsed, DEFAULT[parsed.kind], text)
  end
end

return _M
