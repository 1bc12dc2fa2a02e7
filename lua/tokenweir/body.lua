--- The request's body: read, parsed where it is JSON that we understand, and changed by offset.
--
-- Up to `client_body_buffer_size` nginx keeps it in memory. A larger one is in a file, which a worker thread reads, as
-- it does one in memory of very many values: the worker itself never blocks on it, and it is never let through unread.
local body_bytes = require "tokenweir.body_bytes"
local body_rate = require "tokenweir.body_rate"
local burst = require "tokenweir.core.body.burst"
local bytes = require "tokenweir.core.bytes"
local errors = require "tokenweir.errors"
local form = require "tokenweir.core.body.form"
local json_string = require "tokenweir.core.json.string"
local posix = require "tokenweir.posix"
local prefix_blocks = require "tokenweir.core.body.prefix_blocks"
local request_context = require "tokenweir.request_context"
local request = require "tokenweir.core.body.request"
local splice = require "tokenweir.core.json.splice"
local variables = require "tokenweir.variable"

local ngx = ngx
local bytes_in_memory = body_bytes.get
local parse_bytes = request.parse_bytes
local read_all, read_all_of_stream = body_rate.read, body_rate.read_stream
local bytes_of, variable = variables.bytes, variables.get
local discard_body, get_method = ngx.req.discard_body, ngx.req.get_method
local get_body_data, get_body_file = ngx.req.get_body_data, ngx.req.get_body_file
local run_worker_thread = rawget(ngx, "run_worker_thread")  -- missing where nginx has no threads
local find, lower = string.find, string.lower
local ipairs, type, unpack = ipairs, type, unpack

local THREADS, MODULE = "tokenweir", "tokenweir.body_file"

--- Methods whose requests have no body, or none that an engine reads.
local BODILESS = { GET = true, HEAD = true, DELETE = true, OPTIONS = true }

--- Reading more than so many bytes again would hold the worker up for more than some 20 us.
local MOST_READ_AGAIN = 16384

--- Values that a worker reads by itself (see `json/walk.lua`). What a body costs is told by them: 15 to 100 ns each,
-- and hardly anything for the length of a text. A long conversation with many tools has some thousands.
local MOST_VALUES = 16384

--- Members given several times are made to say the same; a body must not be made much longer by that.
local MOST_GROWTH = 65536

local EMPTY = bytes.of("")

--- The protocol as nginx names it, and where its number is.
local HTTP2, MAJOR, TWO = "HTTP/2.0", 5, 50

local _M = {}

local edits = {}
local made = 0

local function refuse(code, message, param)
  local encoding = variable("http_content_encoding")
  if encoding and encoding ~= "" and lower(encoding) ~= "identity" then
    return errors.send(415, "unsupported_encoding",
      "The body is sent with Content-Encoding '" .. errors.echo(encoding) .. "'; send it as plain JSON.")
  end
  return errors.send(400, code, message, param)
end

-- A body that is not understood is the engine's to judge, unless what the key allows depends on it.
local function refuse_unless_other(r, code, message, param)
  if r.kind == "other" and not (r.key and r.key.models) then
    return request.clear(r.parsed)
  end
  return refuse(code, message, param)
end

local function in_thread(...)
  if not run_worker_thread then
    return errors.send(413, "request_too_large",
      "A body of this size cannot be read here: this nginx has no worker threads (limits.body_memory is the bound).")
  end
  local ran, result, err = run_worker_thread(THREADS, MODULE, ...)
  if not ran then
    ngx.log(ngx.ERR, "tokenweir: a worker thread failed: ", result)
    return errors.send(500, "internal_error", "The gateway could not read the body.")
  end
  return result, err
end

local function inspect(what, path, how)
  local found = in_thread(what, path, how)
  if found.code == "unreadable" then
    ngx.log(ngx.ERR, "tokenweir: a body file cannot be read: ", found.message)
    return errors.send(500, "internal_error", "The gateway could not read the body.")
  end
  return found
end

local function adopt(r, found, path)
  if not found.ok then
    return refuse_unless_other(r, found.code, found.message, found.param)
  end
  request.adopt(r.parsed, found, path)
  r.digest = found.digest or false  -- nothing of it can be hashed later without reading it again
end

-- Forms (audio, files) are looked into for their model only; everything else below /v1/ is JSON.
local function is_form()
  local content_type = variable("content_type")
  return content_type and find(lower(content_type), "multipart/", 1, true) == 1
end

local function boundary_of()
  local content_type = ngx.req.get_headers(0)["content-type"]
  return type(content_type) == "string" and form.boundary(content_type) or nil
end

local function read_form(r, p, size, path)
  local found
  local boundary = boundary_of()
  if not boundary then
    found = { message = "its Content-Type names no boundary, or more than one" }
  elseif path then
    found = inspect("inspect_form", path, boundary)
  else
    local ok, model, first, last = form.model(p, size, boundary)
    found = ok and { ok = true, model = model, first = first, last = last } or { message = model }
  end
  if found.ok then
    found.file = path
    r.form = found.model and found or false
  elseif r.key and r.key.models then
    return refuse("invalid_form", "The form cannot be read: " .. found.message .. ".")
  end
end

-- `ngx.req.http_version` says the same, but LuaJIT does not compile a call of it.
local function is_http2()
  local p, size = bytes_of("server_protocol")
  return size == #HTTP2 and p[MAJOR] == TWO
end

-- On HTTP/2 a body of unknown length cannot be read here (newer ngx_lua say so), and a request without a body names no
-- length either. What such a request has of a body all the same is not let through unread: it is dropped.
-- @return boolean, whether there is no body
local function has_none()
  if variable("content_length") then
    return false
  elseif BODILESS[get_method()] then
    discard_body()
    return true
  end
  return errors.send(411, "length_required",
    "On HTTP/2 a request with a body has to name its length: send Content-Length.")
end

--- Reads the whole body and parses what is JSON into `r.parsed`. A bad one ends the request.
function _M.read(r)
  if not is_http2() then
    read_all(r)
  elseif has_none() then
    return
  else
    read_all_of_stream(r)
  end
  local p, size = bytes_in_memory()
  local path = not p and get_body_file()
  if r.kind == "other" then
    if not path and (not p or size == 0) then
      return
    elseif is_form() then
      return read_form(r, p, size, path)
    end
  end
  if path then
    return adopt(r, inspect("inspect", path, r.kind), path)
  end
  local ok, code, message, param = parse_bytes(r.kind, p or EMPTY, size or 0, r.parsed, MOST_VALUES)
  if ok == false then
    return adopt(r, inspect("inspect_text", get_body_data(), r.kind))
  elseif not ok then
    return refuse_unless_other(r, code, message, param)
  end
  local conflict = r.parsed.conflict
  if conflict and splice.growth(r.parsed) > MOST_GROWTH then
    return refuse("invalid_member", "'" .. conflict .. "' is given several times with different values.", conflict)
  end
end

--- Puts aside what was read of a request's body while it waits: it is cheaper to be read again than to be kept.
function _M.put_aside(r)
  local parsed = r.parsed
  if not parsed.kind or parsed.found or parsed.size > MOST_READ_AGAIN then
    return
  end
  if r.blocks then
    local kept = prefix_blocks.keep(r.blocks)
    if kept == r.blocks then
      return
    end
    r.blocks = kept
  end
  request.clear(parsed)
  request_context.put_aside(r)
end

--- Reads it again.
function _M.take_up(r)
  if request_context.take_up(r) then
    local p, size = bytes_in_memory()
    parse_bytes(r.kind, p or EMPTY, size or 0, r.parsed)
    if r.blocks then
      r.blocks = r.parsed.blocks
    end
  end
end

local function cannot_change(err)
  ngx.log(ngx.ERR, "tokenweir: a changed body cannot be written: ", err)
  return errors.send(500, "internal_error", "The gateway could not change the body.")
end

-- The new file is nginx's from `set_body_file` on. Until then it is ours to remove: the client may leave at any moment.
local function rewrite_file(r, path)
  made = made + 1
  local name = path .. "." .. ngx.worker.pid() .. "." .. made
  local ok, err = posix.create(name)
  if not ok then
    return cannot_change(err)
  end
  r.body_file = name
  local written
  written, err = in_thread("rewrite", path, name, unpack(edits))
  if not written then
    return cannot_change(err)
  end
  ngx.req.set_body_file(name, true)
  r.body_file = false
end

--- Removes what was made of the body and not handed over; in the log phase, if `r.body_file`.
function _M.discard(r)
  posix.unlink(r.body_file)
  r.body_file = false
end

--- Makes a form name the model as the engine does.
function _M.rewrite_form(r, upstream)
  local found = r.form
  if found.model == upstream then
    return
  end
  for k = #edits, 1, -1 do
    edits[k] = nil
  end
  edits[1], edits[2], edits[3] = found.first, found.last, upstream
  if found.file then
    return rewrite_file(r, found.file)
  end
  ngx.req.set_body_data(splice.apply(get_body_data(), edits))
end

--- Makes the body say what the engine is to see: its own name of the model, one value for each member, in burst mode a
-- short answer, and where it finds a cache that was moved.
-- @param upstream string, the engine's name of the model
-- @param insert boolean, whether a body without a model gets one
function _M.rewrite(r, upstream, insert)
  local parsed = r.parsed
  local renamed = parsed.model ~= upstream and (parsed.model or insert)
  if not renamed and not parsed.conflict and not r.burst and not r.kv_params then
    return
  end
  for k = #edits, 1, -1 do
    edits[k] = nil
  end
  if not parsed.file then
    -- Other requests may have been read since; the offsets hold.
    parsed.body = get_body_data()
    parsed.p = bytes.of(parsed.body)
  end
  if r.burst then
    burst.edit(edits, parsed, r.burst)
  end
  if renamed then
    splice.set_member(edits, parsed, "model", json_string.encode(upstream))
  end
  if r.kv_params then
    splice.insert_member(edits, parsed, "kv_transfer_params", r.kv_params)
  end
  if parsed.file then
    return rewrite_file(r, parsed.file)
  end
  if parsed.conflict then
    splice.agree(edits, parsed)
  end
  ngx.req.set_body_data(splice.apply(parsed.body, edits))
end

--- Removes the bodies that a gateway or a worker left which was killed; when a worker starts.
-- @param directory string, where nginx keeps them; @param before wall time in seconds: what is younger is in use
function _M.sweep(directory, before)
  for _, file in ipairs(posix.files(directory)) do
    if file[2] < before then
      posix.unlink(directory .. "/" .. file[1])
    end
  end
end

return _M
