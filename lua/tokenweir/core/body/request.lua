--- What Tokenweir needs to know of an OpenAI-style request body, found in one pass and by offset.
--
--     local out = request.new()
--     local ok, code, message, param = request.parse("chat", body, out)
--     -- out.model, out.stream, out.n, out.max_tokens, out.prompt_bytes, ...
--     request.span(out, "model")   --> first, last: 1-based and inclusive, as string.sub and splice take them
--     request.clear(out)           -- before the table waits for the next request
--
-- Of members given twice the last one counts, as in Python's parser; `out.conflict` names one whose values differ,
-- because another parser may take the first (`splice.agree` mends that). Names are compared with escapes decoded.
local ffi = require "ffi"
local bytes = require "tokenweir.core.bytes"
local fixed_array = require "tokenweir.core.fixed_array"
local fixed_table = require "tokenweir.core.fixed_table"
local json = require "tokenweir.core.json.walk"
local json_string = require "tokenweir.core.json.string"
local parameters = require "tokenweir.core.body.parameters"
local prefix_blocks = require "tokenweir.core.body.prefix_blocks"
local prompt = require "tokenweir.core.body.prompt"
local shape = require "tokenweir.core.body.request_shape"

local begin_slot, start_tally, take_tally = prompt.begin, prompt.start, prompt.take
local take_count, take_open = prompt.on_count, prompt.on_open
local take_string, take_whole = prompt.on_string, prompt.on_whole
local decode = json_string.decode_bytes
local read_parameters = parameters.read
local find, format, gsub, lower = string.find, string.format, string.gsub, string.lower
local cast, ffi_new, ffi_fill = ffi.cast, ffi.new, ffi.fill
local ipairs = ipairs
local pointer = ffi.typeof("const uint8_t *")
local same = bytes.same
local ALL, space_end, TOO_MANY, walk = json.ALL, json.space_end, json.TOO_MANY, json.walk

local NAMES, TAGS, BY_KIND = shape.NAMES, shape.TAGS, shape.BY_KIND
local LAST_STRICT = shape.LAST_STRICT
local FUNCTIONS, INPUT, MESSAGES, PROMPT, TOOLS = TAGS.functions, TAGS.input, TAGS.messages, TAGS.prompt, TAGS.tools
local SLOTS = prompt.SLOTS
local QUOTE, OPEN_OBJECT = 34, 123

local _M = {}

--- Top-level members of one body; engines know about 60.
_M.MAX_MEMBERS = 512
local MAX_MEMBERS = _M.MAX_MEMBERS

-- What Go's parser takes for a name written in small letters: other cases of them, and two signs of Unicode whose small
-- letters are ASCII's (long s, Kelvin).
local function folded(name)
  local small = lower(name)
  if find(small, "[\197\226]") then
    small = gsub(gsub(small, "\197\191", "s"), "\226\132\170", "k")
  end
  return small
end

-- The members of the outermost object while it is read: at fixed places, for there is only one at a time.
local seen = fixed_array.new("int32_t", 1)
local tag_of, first_of = fixed_array.new("int32_t", MAX_MEMBERS + 1), fixed_array.new("int32_t", MAX_MEMBERS + 1)
local last_of = fixed_array.new("int32_t", MAX_MEMBERS + 1)
-- The names of those that we do not know, and one that Go's parser takes for one that we know.
local unknown, disguised = {}, { false }

local on = {}

function on.string(_, at, p, first, last)
  take_string(at, p, first, last)
end

function on.whole(_, at, p, first, n)
  return take_whole(at, p, first, n)
end

function on.open(_, at, p, first)
  take_open(at, p, first)
end

function on.count(_, at, count)
  take_count(at, count)
end

local function note_unknown(k, name)
  unknown[k] = name
  -- Go's parser, and so Ollama, takes a name in any case for the one that it knows; no other does.
  local meant = folded(name)
  if meant ~= name and (TAGS[meant] or LAST_STRICT + 1) <= LAST_STRICT then
    disguised[1] = name
  end
end

function on.member(_, at, _, name, first)
  local k, tag = seen[0] + 1, at.tag
  seen[0] = k
  if k > MAX_MEMBERS then
    return true
  end
  tag_of[k], first_of[k] = tag, first
  if tag == 0 then
    note_unknown(k, name)
  elseif tag <= SLOTS then
    begin_slot(tag)
  end
end

function on.ended(_, _, last)
  last_of[seen[0]] = last
end

-- Whether member `k` says the same as member `before` of the same name.
local function agree(p, k, before)
  local first, other = first_of[k], first_of[before]
  local size = last_of[k] - first
  return size == last_of[before] - other and same(p + first, p + other, size)
end

local function note_again(out, p, tag, k)
  if tag <= LAST_STRICT and not out.conflict and not agree(p, k, out.where[tag]) then
    out.conflict = NAMES[tag]
  end
end

local function collect_members(out, p)
  local names, tags, firsts, lasts, where = out.names, out.tags, out.firsts, out.lasts, out.where
  for k = 1, seen[0] do
    local tag = tag_of[k]
    tags[k], firsts[k], lasts[k] = tag, first_of[k], last_of[k]
    if tag == 0 then
      names[k] = unknown[k]
    else
      names[k] = NAMES[tag]
      if where[tag] > 0 then
        note_again(out, p, tag, k)
      end
      where[tag] = k
    end
  end
  out.members = seen[0]
end

-- Chat templates print the definitions as JSON, names and all.
local function count_definitions(out, tag)
  local k = out.where[tag]
  if k > 0 then
    out.tally.text[tag] = out.lasts[k] - out.firsts[k]
  end
end

local MEMBERS = {
  "body", "p", "size", "kind", "file", "found", "object", "members", "where", "names", "tags", "firsts", "lasts",
  "tally", "blocks",
  "conflict", "value", "model", "stream", "n", "best_of", "max_tokens", "max_tokens_name", "prompt_bytes",
  "prompt_tokens", "messages", "prompts", "media", "error_code", "error_message", "error_param", "estimated_tokens",
  "system_id", "prompt_id",
}

--- A table for `parse`, to be used again and again. What a request does not tell is false in it.
function _M.new()
  local out = fixed_table.new(MEMBERS)
  _M.clear(out)
  return out
end

--- Forgets the request, so that a reused table keeps no body alive.
function _M.clear(out)
  out.body, out.p, out.size, out.kind = false, false, 0, false
  out.file, out.found, out.object = false, false, 0
  out.members, out.conflict = 0, false
  out.model, out.stream, out.n, out.best_of = false, false, 1, false
  out.max_tokens, out.max_tokens_name = false, false
  out.prompt_bytes, out.prompt_tokens, out.messages, out.prompts, out.media = 0, false, 0, 1, 0
  out.error_code, out.error_message, out.error_param = false, false, false
  if not out.tally then
    out.tally = prompt.new_tally()
    -- Outlives the request's body: its end has to find them.
    out.blocks = prefix_blocks.new()
    out.where = ffi_new("int32_t[?]", #NAMES + 1)
    out.names, out.tags, out.firsts, out.lasts = {}, {}, {}, {}
  end
  ffi_fill(out.where, 4 * (#NAMES + 1))
end

local function invalid_json(what, at)
  return nil, "invalid_json", format("Invalid JSON: %s at byte offset %d.", what, at)
end

-- Over all slots. A loop would end the trace.
local function sum(of)
  return of[1] + of[2] + of[3] + of[4] + of[5] + of[6] + of[7] + of[8]
end
assert(SLOTS == 8)

local function sum_up(out, kind)
  local tally = out.tally
  take_tally(tally, out.blocks)
  count_definitions(out, TOOLS)
  count_definitions(out, FUNCTIONS)
  local text, tokens, media = sum(tally.text), sum(tally.tokens), sum(tally.media)
  out.prompt_bytes, out.media = text, media
  out.prompt_tokens = tokens > 0 and tokens
  local items = tally.items
  if kind == "responses" then
    out.messages = items[INPUT]
  else
    out.messages = items[MESSAGES]
    local prompts = items[PROMPT] + items[INPUT]
    out.prompts = prompts > 1 and prompts or 1
  end
end

--- As `parse`, of `size` bytes at `p`, where `p[size]` can be read and is 0. `p` must live as long as `out` is used.
-- @tparam[opt] number most values after which it gives up (`json/walk.lua`), and returns false
function _M.parse_bytes(kind, p, size, out, most)
  if out.kind or not out.tally then
    _M.clear(out)
  end
  start_tally()
  seen[0], disguised[1] = 0, false
  out.p, out.size, out.kind = p, size, kind
  local first = 0
  -- A byte order mark, as PowerShell writes it; Python's and llama.cpp's parsers step over it too.
  if size >= 3 and p[0] == 0xEF and p[1] == 0xBB and p[2] == 0xBF then
    first = 3
  end
  first = space_end(p, first)
  if p[first] ~= OPEN_OBJECT then
    return invalid_json(first == size and "the body is empty, expected '{'" or "expected '{'", first)
  end
  out.object = first
  local last, what, at = walk(p, first, size, BY_KIND[kind], on, out, true, most or ALL)
  if seen[0] > MAX_MEMBERS then
    return nil, "too_many_members", format("The body has more than %d members.", MAX_MEMBERS)
  elseif what == TOO_MANY then
    return false
  elseif not last then
    return invalid_json(what, at)
  elseif last ~= size then
    return invalid_json("expected nothing more after the object, found data", last)
  elseif disguised[1] then
    local meant = folded(disguised[1])
    return nil, "invalid_member", format("'%.64s' differs from '%s' in case only; write '%s'.", disguised[1], meant,
      meant), meant
  end
  collect_members(out, p)
  if not read_parameters(out, p) then
    return nil, out.error_code, out.error_message, out.error_param or nil
  end
  sum_up(out, kind)
  return true
end

--- Reads one request body.
--
-- Fills `out`: `model` (string), `stream` (boolean), `n` (default 1), `best_of`, `max_tokens` and `max_tokens_name`,
-- `prompt_bytes` (UTF-8 bytes of text that the model reads, media left out; see `prompt`),
-- `prompt_tokens` (ids, where the prompt is given as numbers), `messages` (of chat, items of responses),
-- `prompts` (of completions and embeddings: how many are asked at once), `media` (parts), `conflict` (see above); false
-- is what is not told.
-- @tparam string kind "chat", "completions", "responses", "embeddings" or "other" (of which only `model` and `stream`
--   are read)
-- @tparam string body
-- @tparam table out reused from call to call, cleared first
-- @treturn boolean true; or nil, an error code (`invalid_json`, `invalid_type`, `invalid_value`, `invalid_member`,
--   `too_many_members`), a message for the client, and the parameter's name or nil
function _M.parse(kind, body, out)
  local ok, code, message, param = _M.parse_bytes(kind, cast(pointer, body), #body, out)
  out.body = body
  return ok, code, message, param
end

local ADOPTED = {
  "kind", "size", "model", "stream", "n", "best_of", "max_tokens", "max_tokens_name", "prompt_bytes", "prompt_tokens",
  "messages", "prompts", "media", "object", "members", "names", "firsts", "lasts",
}

--- Takes over what a worker thread found of a body (`body_file.lua`): everything here then answers as after `parse`.
-- @tparam table out cleared first
-- @tparam table found its result, with `ok` true
-- @tparam[opt] string path of a body in a file, stays in `out.file`; `out.body` is false
function _M.adopt(out, found, path)
  _M.clear(out)
  for _, name in ipairs(ADOPTED) do
    out[name] = found[name] or false
  end
  out.found, out.file = found, path
  if found.blocks then
    prefix_blocks.load(out.blocks, found.blocks)
  end
end

--- The place of the member's value that counts, without making a table.
-- @treturn number first, last, 1-based and inclusive; or nil when absent
local function span(out, name)
  local tag = TAGS[name]
  if tag and tag > LAST_STRICT and not out.found then
    local k = out.where[tag]
    if k == 0 then
      return nil
    end
    return out.firsts[k] + 1, out.lasts[k]
  end
  for k = out.members, 1, -1 do
    if out.names[k] == name then
      return out.firsts[k] + 1, out.lasts[k]
    end
  end
  return nil
end
_M.span = span

--- The decoded value of a top-level string member, such as `prompt_cache_key` (of a body in a file, only of those that
-- `body_file` lists).
-- @treturn string or nil when it is absent, not a string, or longer than `limit` bytes
function _M.text(out, name, limit)
  if out.found then
    local value = out.found.texts[name]
    return value and (not limit or #value <= limit) and value or nil
  end
  local first, last = span(out, name)
  if not first or out.p[first - 1] ~= QUOTE or limit and last - first - 1 > limit then
    return nil
  end
  return (decode(out.p, first, last - 1))
end

return _M
