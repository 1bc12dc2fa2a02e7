--- Reservations whose client has gone while the engine runs on.
-- A worker that drains hands them to the others through the shared dict: it may be gone before the engine is done.
local cjson = require "cjson.safe"
local load = require "tokenweir.core.backend.load"
local numbering = require "tokenweir.numbering"
local scoreboard = require "tokenweir.scoreboard"

local dict = ngx.shared.tokenweir_handover
local exiting = ngx.worker.exiting
local sqrt = math.sqrt

local QUEUE = "lingering"
local MOST = 10000

--- What `load.release` needs of a request.
local FIELDS = { "n", "prompt", "expected", "most", "tokens", "held", "remaining", "variance", "bucket", "prefill" }

local _M = {}

local kept, count = {}, 0

local function hand_over(entry)
  entry.backend = numbering.backend_at(entry.place)
  load.release(scoreboard.own().load[entry.place], entry)
  if entry.backend then
    entry.reserved = nil
    dict:rpush(QUEUE, cjson.encode(entry))
  end
end

--- Moves a request's reservation into a record of its own.
-- @param row tw_load that it is reserved in
-- @return boolean true: it lingers; false: it was released at once, because too many do already
function _M.keep(row, r, until_ms, now)
  if count >= MOST then
    load.release(row, r)
    return false
  end
  local entry = { reserved = true, flowing = 0, place = r.place, until_ms = until_ms, since = now }
  if r.flowing > 0 then
    row.flowing = row.flowing - r.flowing
  end
  for k = 1, #FIELDS do
    entry[FIELDS[k]] = r[FIELDS[k]]
  end
  r.reserved, r.prefill, r.flowing = false, 0, 0
  if exiting() then
    hand_over(entry)
  else
    count = count + 1
    kept[count] = entry
  end
  return true
end

--- Takes over what draining workers handed on.
local function adopt(now)
  local text = dict:lpop(QUEUE)
  while text do
    local entry = cjson.decode(text)
    local place = entry and entry.until_ms > now and numbering.backend(entry.backend)
    if place then
      local own = scoreboard.own()
      local tokens = entry.tokens
      entry.place, entry.max_tokens, entry.mean = place, entry.most, entry.expected
      entry.sd = sqrt(entry.variance) / entry.n
      load.reserve(own.load[place], entry)
      load.progress(own.load[place], entry, tokens)
      if own.used <= place then
        own.used = place + 1
      end
      count = count + 1
      kept[count] = entry
    end
    text = dict:lpop(QUEUE)
  end
end

--- Whether the engine's own figures, read after the client left, show that it has nothing to do.
local function idle(entry, known, i, now)
  local fleet = known.fleet
  if known.stale or fleet.load[i] ~= 0 or fleet.load_age_ms[i] < 0 then
    return false
  end
  local read_at = now - known.snapshot_age_ms - fleet.load_age_ms[i]
  return read_at > entry.since
end

local function over(entry, known, now)
  if now >= entry.until_ms then
    return true
  end
  if not known.fleet then
    return false
  end
  local i = known.fleet.index[numbering.backend_at(entry.place) or ""]
  return not i or idle(entry, known, i, now)
end

--- Releases what is over; from a timer.
function _M.settle(known, now)
  if exiting() then
    return _M.hand_over()
  end
  adopt(now)
  local k = 1
  while k <= count do
    local entry = kept[k]
    if over(entry, known, now) then
      load.release(scoreboard.own().load[entry.place], entry)
      kept[k], kept[count] = kept[count], nil
      count = count - 1
    else
      k = k + 1
    end
  end
end

--- Hands all of them to the other workers; when this one drains.
function _M.hand_over()
  for k = 1, count do
    hand_over(kept[k])
    kept[k] = nil
  end
  count = 0
end

--- @return number of reservations that linger in this worker
function _M.count()
  return count
end

return _M
