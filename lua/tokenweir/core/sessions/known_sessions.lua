--- A compact memory of sessions: whether one was served lately. 8 bytes a session, in sets of eight.
--
-- A session is two 32-bit halves of a hash (`session.lua`): one chooses the set, the other is its tag. A full set
-- forgets the session that it heard of longest ago. Workers share the sets without a lock: a race costs one mark, and a
-- session is marked again with its next request.
local ffi = require "ffi"
local bit = require "bit"

local band = bit.band
local floor = math.floor

ffi.cdef [[
typedef struct { int32_t tag; uint32_t seen; } tw_known;   /* seen: s of the monotonic clock, 0: empty */
typedef struct { tw_known way[8]; } tw_known_set;
]]

local SETS = 65536
local LAST_SET, LAST_WAY = SETS - 1, 7

--- A session is marked anew only when a quarter of its life has passed, so it lives that much longer than it must.
local RENEW, LIFE = 0.25, 1.25

local _M = { SETS = SETS, LIFE = LIFE, SIZE = SETS * ffi.sizeof("tw_known_set") }

--- A new empty memory; it must be kept.
function _M.new()
  return ffi.new("tw_known_set[?]", SETS)
end

-- 0 stands for an empty place.
local function second(now)
  return floor(now / 1000) + 1
end

local function find(set, tag)
  for k = 0, LAST_WAY do
    local way = set.way[k]
    if way.tag == tag and way.seen ~= 0 then
      return way
    end
  end
  return nil
end

-- The place to be given up for a new session: an empty one, or the oldest.
local function oldest(set)
  local way = set.way[0]
  for k = 1, LAST_WAY do
    if set.way[k].seen < way.seen then
      way = set.way[k]
    end
  end
  return way
end

-- Never a moment with the new tag and the old time.
local function put(way, tag, at)
  way.seen = 0
  way.tag = tag
  way.seen = at
end

--- Whether a session was served within `life_ms`.
-- @param sets array of tw_known_set; @param a, b the halves of its hash
function _M.knows(sets, a, b, now, life_ms)
  local way = find(sets[band(b, LAST_SET)], a)
  return way ~= nil and (second(now) - way.seen) * 1000 <= LIFE * life_ms
end

--- Marks a session as served now.
-- @return boolean whether others should hear of it: it is new, or was marked a while ago
function _M.mark(sets, a, b, now, life_ms)
  local set, at = sets[band(b, LAST_SET)], second(now)
  local way = find(set, a)
  if way then
    if (at - way.seen) * 1000 < RENEW * life_ms then
      return false
    end
    way.seen = at
    return true
  end
  put(oldest(set), a, at)
  return true
end

--- Marks a session that another gateway served `age_ms` ago.
function _M.learn(sets, a, b, now, age_ms)
  local set, at = sets[band(b, LAST_SET)], second(now - age_ms)
  if at < 1 then
    return
  end
  local way = find(set, a)
  if way then
    if way.seen < at then
      way.seen = at
    end
    return
  end
  way = oldest(set)
  if way.seen < at then
    put(way, a, at)
  end
end

--- How many sessions are known; for the metrics.
function _M.count(sets, now, life_ms)
  local least, count = second(now) - LIFE * life_ms / 1000, 0
  for s = 0, LAST_SET do
    local set = sets[s]
    for k = 0, LAST_WAY do
      local seen = set.way[k].seen
      if seen ~= 0 and seen >= least then
        count = count + 1
      end
    end
  end
  return count
end

return _M
