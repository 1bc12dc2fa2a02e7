--- The documents that the gateway follows, as text in a shared dict of their own: one worker fetches, every
-- worker applies.
--
-- Only what passed `admit` gets in, so a bad document is refused and counted once, and a worker that starts finds
-- good ones. `meta` says when a document was first seen, on the monotonic clock: a snapshot's age counts from there.
local cjson = require "cjson.safe"
local check = require "tokenweir.core.documents.check"
local clock = require "tokenweir.clock"
local contract = require "tokenweir.contract"
local long_json = require "tokenweir.core.json.long"
local fence = require "tokenweir.core.documents.fence"

local dict = ngx.shared.tokenweir_documents
local now_ms = clock.ms
local crc32 = ngx.crc32_long
local tonumber = tonumber
local format, match = string.format, string.match

local STALE_MS = contract.numbers.snapshot_stale_ms
local MAX_BYTES = { snapshot = 16777216, settings = 67108864, stats = 16777216, histories = 1048576,
  predictor_model = 16777216 }
-- For longer no worker stands still between two lines.
local REMEMBERED_S = 60

local _M = { NAMES = { "settings", "stats", "histories", "predictor_model", "snapshot" } }

local rival = {}

local function count(name, reason)
  dict:incr("refused:" .. name .. ":" .. reason, 1, 0)
end

-- Whether no other worker has refused this text since a good one came: one that polled and was held up may still be at
-- it when the next has taken over.
local function is_first_to_refuse(name, text)
  local key = format("refusal:%s:%d:%s:%d", name, _M.version(name), crc32(text), #text)
  local _, err = dict:safe_add(key, true, REMEMBERED_S)
  return err ~= "exists"
end

--- @return number how many times a document was published in this gateway, 0 if never
function _M.version(name)
  return dict:get(name .. ":version") or 0
end

--- @return table { number (its sequence or version), fence, seen (ms), from_disk }, or nil
function _M.meta(name)
  local meta = dict:get(name .. ":meta")
  if not meta then
    return nil
  end
  local number, own_fence, seen, origin = match(meta, "^(%S+) (%S+) (%S+) (%S+)$")
  return {
    number = tonumber(number), fence = tonumber(own_fence), seen = tonumber(seen), from_disk = origin == "disk",
  }
end

--- @return string the text, or nil
function _M.text(name)
  return (dict:get(name))
end

--- Whether a document is there for workers that start. A full dict may have dropped it; then what was known of it goes
-- too, so that it is taken in anew.
function _M.is_present(name)
  if dict:ttl(name) and dict:ttl(name .. ":meta") then
    return true
  end
  dict:delete(name .. ":meta")
  return false
end

local function put(name, text, document, seen, origin)
  local ok, err = dict:safe_set(name, text)
  if not ok then
    return nil, err
  end
  local number = tonumber(document.sequence or document.version) or 0
  ok, err = dict:safe_set(name .. ":meta",
    format("%.0f %.0f %.3f %s", number, document.fence or 0, seen, origin))
  if not ok then
    return nil, err
  end
  return dict:incr(name .. ":version", 1, 0)
end

local function judge_snapshot(document, now)
  local own = _M.meta("snapshot")
  if own then
    own.sequence = own.number
    own.stale = own.from_disk or now - own.seen > STALE_MS
  end
  return fence.judge(own, document.fence, document.sequence, now, rival)
end

local function admit(name, text, origin, build, pause)
  if #text > MAX_BYTES[name] then
    return nil, "size"
  end
  local document, err = long_json.decode(text, cjson.decode, pause)
  if type(document) ~= "table" then
    return nil, "json", err or "not an object"
  end
  if pause then
    pause()
  end
  local ok
  ok, err = check.document(document, name, pause)
  if not ok then
    return nil, document.schema ~= contract.schema and "schema" or "value", err
  end
  local now = now_ms()
  local version = _M.version(name)
  if name == "snapshot" then
    local verdict = judge_snapshot(document, now)
    if verdict == "same" then
      return false
    elseif verdict ~= "newer" then
      return nil, verdict, "fence " .. document.fence .. ", sequence " .. document.sequence
    end
  end
  if build then
    local reason
    ok, err, reason = build(document, pause)
    if not ok then
      return nil, reason or "value", err
    end
  end
  if pause then
    pause()
  end
  -- Another worker may have published a later one during a pause.
  if name == "snapshot" and _M.version(name) ~= version and judge_snapshot(document, now) ~= "newer" then
    return false
  end
  ok, err = put(name, text, document, origin == "disk" and 0 or now, origin)
  if not ok then
    return nil, "memory", err
  end
  return true
end

--- Checks a document and publishes it to all workers of this gateway. What is refused is counted, once.
-- @param name string of `NAMES`
-- @param text string the JSON
-- @param origin string "redis" or "disk"
-- @param build function(document, pause) -> true | nil, err, reason: a last check by those who will use it; or nil.
--   Without a reason it is "value"
-- @param pause function or nil, called now and then: it may yield, where this runs in a timer
-- @return true if it is new and in place, false if it is the one already there; or nil, reason, detail: the reason is
--   nil where another worker has refused and counted the same text. Reasons are
--   few and fixed, since they are labels of a counter: size, json, schema, value, lower fence, lower sequence, memory,
--   and those of `core/prediction/predictor.lua`
function _M.admit(name, text, origin, build, pause)
  local new, reason, detail = admit(name, text, origin, build, pause)
  if new == nil then
    if not is_first_to_refuse(name, text) then
      return nil
    end
    count(name, reason)
  end
  return new, reason, detail
end

--- Counters of refused documents.
-- @return list of {document, reason, count}
function _M.refused()
  local list = {}
  local keys = dict:get_keys(0)
  for k = 1, #keys do
    local name, reason = match(keys[k], "^refused:([^:]+):(.+)$")
    if name then
      list[#list + 1] = { name, reason, dict:get(keys[k]) }
    end
  end
  return list
end

--- Counts a document that passed `admit` but could not be applied by a worker.
function _M.refuse(name, reason)
  count(name, reason)
end

return _M
