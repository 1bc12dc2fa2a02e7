--- The last documents on disk, so that a gateway can start while Redis is away.
--
-- The master opens the files (workers often run as another user, who may not create any there) and the worker that
-- polls writes them. Each document has two files that are written in turn, with a checksum in front: a write that
-- breaks off spoils one of them, and the other is read.
local ffi = require "ffi"
local documents = require "tokenweir.documents"
local posix = require "tokenweir.posix"

local crc32 = ngx.crc32_long
local format, match = string.format, string.match
local ipairs, pairs, tonumber = ipairs, pairs, tonumber

--- Shortest time between two writes of a document; settings change rarely and are written at once.
local EVERY_MS = { snapshot = 5000, stats = 5000, histories = 60000, settings = 0, predictor_model = 0 }
local MOST_BYTES = 96 * 1024 * 1024
local HEADER = "tokenweir %.0f %.0f %.0f\n"  -- number of the write, length, checksum
local HEADER_PATTERN = "^tokenweir (%d+) (%d+) (%d+)\n"

local _M = {}

-- document -> { fds = {a, b}, next = 1 or 2, number = of the last write, saved_at = ms }
local files = {}
local said

local function read(fd)
  local chunk, parts, offset = ffi.new("char[?]", 65536), {}, 0
  while offset < MOST_BYTES do
    local count = posix.pread(fd, chunk, 65536, offset)
    if count <= 0 then
      break
    end
    parts[#parts + 1] = ffi.string(chunk, count)
    offset = offset + count
  end
  local text = table.concat(parts)
  local number, length, sum = match(text, HEADER_PATTERN)
  if not number then
    return nil
  end
  local body = text:sub(#text:match("^[^\n]*\n") + 1)
  if #body ~= tonumber(length) or crc32(body) ~= tonumber(sum) then
    return nil
  end
  return body, tonumber(number)
end

local function open_pair(directory, name)
  local entry = { fds = {}, next = 1, number = 0, saved_at = 0 }
  local newest
  for k, suffix in ipairs { "a", "b" } do
    local fd, err = posix.open(directory .. "/" .. name .. "." .. suffix)
    if not fd then
      return nil, err
    end
    entry.fds[k] = fd
    local text, number = read(fd)
    if text and number > entry.number then
      newest, entry.number, entry.next = text, number, 3 - k
    end
  end
  files[name] = entry
  return true, newest
end

--- Opens the files in the master, and publishes what they hold to workers that have nothing newer.
-- @param directory string, or nil: nothing is kept
-- @return true; or nil, err (the gateway goes on without)
function _M.open(directory)
  if not directory then
    return true
  end
  for _, name in ipairs(documents.NAMES) do
    local ok, text = open_pair(directory, name)
    if not ok then
      return nil, text
    end
    if text and documents.version(name) == 0 then
      local new, reason, detail = documents.admit(name, text, "disk")
      if new == nil then
        ngx.log(ngx.WARN, "tokenweir: the ", name, " on disk is not used (", reason, "): ", detail or "")
      end
    end
  end
  return true
end

--- Closes the files; when the Lua VM that opened them goes.
function _M.close()
  for _, entry in pairs(files) do
    posix.close(entry.fds[1])
    posix.close(entry.fds[2])
  end
  files = {}
end

local function write(name, entry, now)
  local text = entry.waiting
  entry.waiting, entry.saved_at = nil, now
  local header = format(HEADER, entry.number + 1, #text, crc32(text))
  local ok, err = posix.overwrite(entry.fds[entry.next], header, text)
  if ok then
    entry.number, entry.next, said = entry.number + 1, 3 - entry.next, nil
  elseif said ~= err then
    said = err
    ngx.log(ngx.ERR, "tokenweir: cannot keep the ", name, " on disk: ", err)
  end
end

--- Notes a document, to be written when it is due.
function _M.save(name, text)
  if files[name] then
    files[name].waiting = text
  end
end

--- Writes what is due; from the poller's timer.
-- @param all boolean, also what is not due yet; when this worker exits
function _M.flush(now, all)
  for name, entry in pairs(files) do
    if entry.waiting and (all or now - entry.saved_at >= EVERY_MS[name]) then
      write(name, entry, now)
    end
  end
end

-- The descriptors go with the Lua VM, at a reload of the master.
_M.guard = newproxy(true)
getmetatable(_M.guard).__gc = _M.close

return _M
