--- The last documents on disk, so that a gateway can start while Redis is away.
--
-- The master opens the files (workers often run as another user, who may not create any there) and the worker that
-- polls writes what has been published since the last write, whichever worker published it: another one may have
-- polled then. Each document has two files that are written in turn, with a checksum in front: a write that breaks off
-- spoils one of them, and the other is read.
local ffi = require "ffi"
local documents = require "tokenweir.documents"
local posix = require "tokenweir.posix"

local dict = ngx.shared.tokenweir_documents
local crc32 = ngx.crc32_long
local format, match = string.format, string.match
local ipairs, max, pairs, tonumber = ipairs, math.max, pairs, tonumber

--- Shortest time between two writes of a document; settings change rarely and are written at once.
local EVERY_MS = { snapshot = 5000, stats = 5000, histories = 60000, settings = 0, predictor_model = 0 }
--- After a write that failed the next attempt waits at least so long.
local RETRY_MS = 5000
local MOST_BYTES = 96 * 1024 * 1024
local HEADER = "tokenweir %.0f %.0f %.0f\n"  -- number of the write, length, checksum
local HEADER_PATTERN = "^tokenweir (%d+) (%d+) (%d+)\n"

local _M = {}

-- document -> its two descriptors. What was written last is known to all workers, in the dict: `kept:<name>` is the
-- version, `kept:<name>:at` the time of the attempt, `kept:<name>:number` counts the writes; odd ones go to the first.
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
  local fds, last, newest = {}, 0, nil
  for k, suffix in ipairs { "a", "b" } do
    local fd, err = posix.open(directory .. "/" .. name .. "." .. suffix)
    if not fd then
      return nil, err
    end
    fds[k] = fd
    local text, number = read(fd)
    if text and number > last then
      newest, last = text, number
      -- The next one goes to the other file, whatever wrote these.
      dict:set("kept:" .. name .. ":number", number % 2 == k % 2 and number or number + 1)
    end
  end
  files[name] = fds
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
    if not text then
      -- The files are new, or somebody has taken them away.
      dict:delete("kept:" .. name)
    elseif documents.version(name) == 0 then
      local new, reason, detail = documents.admit(name, text, "disk")
      if new == nil then
        ngx.log(ngx.WARN, "tokenweir: the ", name, " on disk is not used (", reason, "): ", detail or "")
      end
      dict:set("kept:" .. name, documents.version(name))
    end
  end
  return true
end

--- Closes the files; when the Lua VM that opened them goes.
function _M.close()
  for _, fds in pairs(files) do
    posix.close(fds[1])
    posix.close(fds[2])
  end
  files = {}
end

local function write(name, fds, text)
  local number = (dict:get("kept:" .. name .. ":number") or 0) + 1
  local header = format(HEADER, number, #text, crc32(text))
  local ok, err = posix.overwrite(fds[2 - number % 2], header, text)
  if ok then
    dict:set("kept:" .. name .. ":number", number)
    said = nil
  elseif said ~= err then
    said = err
    ngx.log(ngx.ERR, "tokenweir: cannot keep the ", name, " on disk: ", err)
  end
  return ok
end

local function is_due(name, now)
  local at = dict:get("kept:" .. name .. ":at")
  return not at or now - at >= (said and max(RETRY_MS, EVERY_MS[name]) or EVERY_MS[name])
end

--- Writes the documents that were published since they were last written, where that is due; from the poller's timer.
-- @param all boolean, also what is not due yet; when this worker exits
function _M.flush(now, all)
  for name, fds in pairs(files) do
    -- Before the text: one that is published in between is written once more.
    local version = documents.version(name)
    if version ~= (dict:get("kept:" .. name) or 0) and (all or is_due(name, now)) then
      local text = documents.text(name)
      dict:set("kept:" .. name .. ":at", now)
      if not text or write(name, fds, text) then
        dict:set("kept:" .. name, version)
      end
    end
  end
end

-- The descriptors go with the Lua VM, at a reload of the master.
_M.guard = newproxy(true)
getmetatable(_M.guard).__gc = _M.close

return _M
