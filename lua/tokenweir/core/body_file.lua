--- Request bodies that nginx put into a file, for a worker thread, which may block.
--
--     local ran, result = ngx.run_worker_thread("tokenweir", "tokenweir.core.body_file", "inspect", path, "chat")
--
-- Everything passed and returned is plain values, as the thread has a Lua of its own.
local ffi = require "ffi"
local mapped_file = require "tokenweir.core.mapped_file"
local request = require "tokenweir.core.request"
local splice = require "tokenweir.core.splice"

local format, ipairs, select, tonumber = string.format, ipairs, select, tonumber
local failed = mapped_file.failed

ffi.cdef [[
int tw_create(const char *path, int flags, ...) __asm__("open");
int tw_close_written(int fd) __asm__("close");
int tw_unlink(const char *path) __asm__("unlink");
long tw_write(int fd, const void *from, size_t n) __asm__("write");
]]

local C = ffi.C

local O_WRONLY, O_CREAT, O_EXCL, O_CLOEXEC = 1, 0x40, 0x80, 0x80000
local OWNER_ONLY = ffi.new("int", 384)
local EINTR = 4

-- String members that a gateway routes by, and how long they may be.
local TEXTS = { "prompt_cache_key", "user", "previous_response_id" }
local MAX_TEXT = 1024

local _M = {}

local parsed = {}

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
    digest = request.digest(out), opening_digest = request.opening_digest(out),
    object = out.object, members = out.members, names = {}, firsts = {}, lasts = {}, texts = {},
  }
  for k = 1, out.members do
    result.names[k], result.firsts[k], result.lasts[k] = out.names[k], out.firsts[k], out.lasts[k]
  end
  for _, name in ipairs(TEXTS) do
    result.texts[name] = request.text(out, name, MAX_TEXT)
  end
  return result
end

--- What `request.parse` finds, of a body in a file.
--
-- A member that Tokenweir reads and that is given twice with different values is refused here: making the occurrences
-- agree could copy a body of any size.
-- @tparam string path
-- @tparam string kind as for `request.parse`
-- @treturn table `ok` true: the fields of `request.parse`, `digest`, `opening_digest`, `texts` (by name:
--   `prompt_cache_key`, `user`, `previous_response_id`), and `object`, `members`, `names`, `firsts`, `lasts` as
--   `splice.set_member`, `request.at` and `request.span` want them; `ok` false: `code`, `message`, `param`; the code
--   `unreadable` is the gateway's own trouble, all others are the client's
function _M.inspect(path, kind)
  local file, trouble = mapped_file.open(path)
  if not file then
    return refused("unreadable", trouble)
  end
  local ok, code, message, param = request.parse_bytes(kind, file.p, file.size, parsed)
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
  mapped_file.close(file)
  return result
end

local function write_all(fd, from, size)
  local done = 0
  while done < size do
    local n = tonumber(C.tw_write(fd, from + done, size - done))
    if n < 0 then
      if ffi.errno() ~= EINTR then
        return false
      end
    else
      done = done + n
    end
  end
  return true
end

local function write_edited(fd, file, edits)
  local from = 0
  for k = 1, #edits, 3 do
    local text = edits[k + 2]
    if not write_all(fd, file.p + from, edits[k] - 1 - from)
      or not write_all(fd, ffi.cast("const uint8_t *", text), #text) then
      return false
    end
    from = edits[k + 1]
  end
  return write_all(fd, file.p + from, file.size - from)
end

--- Writes the file with edits made to a new one, readable by its owner only.
-- @tparam string path
-- @tparam string out_path must not exist; nothing is left there on failure
-- @param ... one edit or more: `first, last, text`, as `splice` has them
-- @treturn number the size of the new file; or nil and what is wrong
function _M.rewrite(path, out_path, ...)
  local edits = { ... }
  local file, trouble = mapped_file.open(path)
  if not file then
    return nil, trouble
  end
  local total, message = splice.plan(file.size, edits)
  if not total then
    mapped_file.close(file)
    return nil, message
  end
  local fd = C.tw_create(out_path, O_WRONLY + O_CREAT + O_EXCL + O_CLOEXEC, OWNER_ONLY)
  if fd < 0 then
    mapped_file.close(file)
    return failed("create", out_path)
  end
  local written = write_edited(fd, file, edits)
  if not written then
    message = select(2, failed("write", out_path))
  end
  if C.tw_close_written(fd) < 0 and written then
    written = false
    message = select(2, failed("write", out_path))
  end
  mapped_file.close(file)
  if not written then
    C.tw_unlink(out_path)
    return nil, message
  end
  return total
end

return _M
