--- Request bodies that take a worker too long: those that nginx put into a file, and those in memory that hold very
-- many values. For a worker thread, which may block.
--
--     local ran, result = ngx.run_worker_thread("tokenweir", "tokenweir.body_file", "inspect", path, "chat")
--
-- Everything passed and returned is plain values, as the thread has a Lua of its own.
local ffi = require "ffi"
local burst = require "tokenweir.core.body.burst"
local bytes = require "tokenweir.core.bytes"
local features = require "tokenweir.core.prediction.features"
local form = require "tokenweir.core.body.form"
local mapped_file = require "tokenweir.mapped_file"
local posix = require "tokenweir.posix"
local prefix_blocks = require "tokenweir.core.body.prefix_blocks"
local prompt_digest = require "tokenweir.core.body.prompt_digest"
local request = require "tokenweir.core.body.request"
local splice = require "tokenweir.core.json.splice"
local words = require "tokenweir.core.prediction.words"

local cast = ffi.cast
local format, ipairs = string.format, ipairs
local write = posix.write

-- String members that a gateway routes by, and how long they may be.
local TEXTS = { "prompt_cache_key", "user", "previous_response_id" }
local MAX_TEXT = 1024

local _M = {}

--- Kinds of requests whose features are read.
local READ = { chat = true, completions = true, responses = true }
local VECTOR_BYTES = 4 * features.COUNT

local parsed = {}
local x = features.new()

local function refused(code, message, param)
  return { ok = false, code = code, message = message, param = param }
end

local function plain(out)
  local result = {
    ok = true, kind = out.kind, size = out.size,
    model = out.model, stream = out.stream, n = out.n, best_of = out.best_of,
    max_tokens = out.max_tokens, max_tokens_name = out.max_tokens_name,
    prompt_bytes = out.prompt_bytes, prompt_tokens = out.prompt_tokens,
    messages = out.messages, prompts = out.prompts, media = out.media,
    digest = prompt_digest.digest(out), opening_digest = prompt_digest.opening_digest(out),
    object = out.object, members = out.members, names = {}, firsts = {}, lasts = {}, texts = {}, keys = {},
    numbers = {},
  }
  for k = 1, out.members do
    local name = out.names[k]
    result.names[k], result.firsts[k], result.lasts[k] = name, out.firsts[k], out.lasts[k]
    result.keys[k] = splice.key_start(out, k)
    if burst.NUMBERS[name] then
      result.numbers[k] = tonumber(ffi.string(out.p + out.firsts[k], out.lasts[k] - out.firsts[k]))
    end
  end
  for _, name in ipairs(TEXTS) do
    result.texts[name] = request.text(out, name, MAX_TEXT)
  end
  if READ[out.kind] then
    result.blocks = prefix_blocks.dump(out.blocks)
    features.read(out, x)
    result.vector = ffi.string(x, VECTOR_BYTES)
    result.hashed = ffi.string(words.text.index, 2 * words.text.count)
    result.estimated_tokens, result.system_id, result.prompt_id = out.estimated_tokens, out.system_id, out.prompt_id
  end
  return result
end

local function read(kind, p, size)
  local ok, code, message, param = request.parse_bytes(kind, p, size, parsed)
  local result
  if not ok then
    result = refused(code, message, param)
  elseif parsed.conflict then
    result = refused("invalid_member", format("'%s' is given twice with different values.", parsed.conflict),
      parsed.conflict)
  else
    result = plain(parsed)
  end
  request.clear(parsed)
  return result
end

--- What `request.parse` finds, of a body in a file.
--
-- A member that Tokenweir reads and that is given twice with different values is refused here: making the occurrences
-- agree could copy a body of any size.
-- @tparam string path
-- @tparam string kind as for `request.parse`
-- @treturn table `ok` true: the fields of `request.parse`, `digest`, `opening_digest`, `texts` (by name:
--   `prompt_cache_key`, `user`, `previous_response_id`), of prompts that are predicted what `features.read` finds
--   (`vector` and `hashed`: its vector's and its words' bytes), its beginnings (`blocks`), and `object`, `members`,
--   `names`, `firsts`, `lasts`, `keys`, `numbers` as `splice`, `burst`, `request.span` want them; `ok` false: `code`,
--   `message`, `param`; the code `unreadable` is the gateway's own trouble, all others are the client's
function _M.inspect(path, kind)
  local file, trouble = mapped_file.open(path)
  if not file then
    return refused("unreadable", trouble)
  end
  local result = read(kind, file.p, file.size)
  mapped_file.close(file)
  return result
end

--- The same of a body in memory.
-- @tparam string text
function _M.inspect_text(text, kind)
  local found = read(kind, bytes.of(text), #text)
  -- No tail call: the text has to be there until it is read.
  found.size = #text
  return found
end

--- What `core/body/form.model` finds, of a form in a file.
-- @treturn table `ok` true: `model`, `first`, `last`; `ok` false: `code` and `message` as of `inspect`
function _M.inspect_form(path, boundary)
  local file, trouble = mapped_file.open(path)
  if not file then
    return refused("unreadable", trouble)
  end
  local ok, model, first, last = form.model(file.p, file.size, boundary)
  mapped_file.close(file)
  if not ok then
    return refused("invalid_form", model)
  end
  return { ok = true, model = model, first = first, last = last }
end

local function write_edited(fd, file, edits)
  local from = 0
  for k = 1, #edits, 3 do
    local text = edits[k + 2]
    local ok, err = write(fd, file.p + from, edits[k] - 1 - from)
    if ok then
      ok, err = write(fd, cast("const uint8_t *", text), #text)
    end
    if not ok then
      return nil, err
    end
    from = edits[k + 1]
  end
  return write(fd, file.p + from, file.size - from)
end

--- Writes the file with edits made into another one.
--
-- That one has to be there already, empty: its maker removes it when it is not wanted any more, also while this waits
-- for its turn or writes, and nothing is left of it then.
-- @tparam string path
-- @tparam string out_path
-- @param ... one edit or more: `first, last, text`, as `splice` has them
-- @treturn number the size of the new file; or nil and what is wrong
function _M.rewrite(path, out_path, ...)
  local edits = { ... }
  local file, trouble = mapped_file.open(path)
  if not file then
    return nil, trouble
  end
  local total, fd, ok
  total, trouble = splice.plan(file.size, edits)
  if total then
    fd, trouble = posix.open_to_write(out_path)
  end
  if fd then
    ok, trouble = write_edited(fd, file, edits)
    posix.close(fd)
  end
  mapped_file.close(file)
  if not ok then
    return nil, trouble
  end
  return total
end

return _M
