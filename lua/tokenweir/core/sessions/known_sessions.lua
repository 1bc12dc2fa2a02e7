--- A compact memory of sessions: whether one was served lately. 8 bytes a session, in sets of eight.
--
-- A session is two 32-bit halves of a hash (`session.lua`): one chooses the set, the other is its tag. A full set
-- forgets the session that it heard of longest ago. Workers share the sets without a lock: a race costs one mark, and a
-- session is marked again with its next request.
local ffi = require "ffi"
local bit = require "bit"
local index = require("tokenweir.core.bytes").index

local band = bit.band
local floor = math.floor

ffi.cdef [[
typedef struct { int32_t tag[8]; uint32_t seen[8]; } tw_known_set;   /* seen: s of the monotonic clock, 0: empty */
]]

local SETS = 65536
local LAST_SET, WAYS = SETS - 1, 8

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

-- The way of a tag, or -1. (An empty one before it that held the same tag hides it; no tag is there twice otherwise.)
local function find(set, tag)
  local k = index(set.tag, tag, WAYS)
  return k >= 0 and set.seen[k] ~= 0 and k or -1
end

-- The way to be given up for a new session: an empty one, or the oldest.
local function oldest(set)
  local way = 0
  for k = 1, WAYS - 1 do
    if set.seen[k] < set.seen[way] then
      way = k
    end
  end
  return way
end

-- Never a moment with the new tag and the old time.
local function put(set, way, tag, at)
  set.seen[way] = 0
  set.tag[way] = tag
  set.seen[way] = at
end

--- Whether a session was served within `life_ms`.
-- @param sets array of tw_known_set; @param a, b the halves of its hash
function _M.knows(sets, a, b, now, life_ms)
  local set = sets[band(b, LAST_SET)]
  local way = find(set, a)
  return way >= 0 and (second(now) - set.seen[way]) * 1000 <= LIFE * life_ms
end

--- Marks a session as served now.
-- @return boolean whether others should hear of it: it is new, or was marked a while ago
function _M.mark(sets, a, b, now, life_ms)
  local set, at = sets[band(b, LAST_SET)], second(now)
  local way = find(set, a)
  if way >= 0 then
    if (at - set.seen[way]) * 1000 < RENEW * life_ms then
      return false
    end
    set.seen[way] = at
    return true
  end
  put(set, oldest(set), a, at)
  return true
end

--- Marks a session that another gateway served `age_ms` ago.
function _M.learn(sets, a, b, now, age_ms)
  local set, at = sets[band(b, LAST_SET)], second(now - age_ms)
  if at < 1 then
    return
  end
  local way = find(set, a)
  if way >= 0 then
    if set.seen[way] < at then
      set.seen[way] = at
    end
    return
  end
  way = oldest(set)
  if set.seen[way] < at then
    put(set, way, a, at)
  end
end

--- How many sessions are known; for the metrics.
function _M.count(sets, now, life_ms)
  local least, count = second(now) - LIFE * life_ms / 1000, 0
  for s = 0, LAST_SET do
    local set = sets[s]
    for k = 0, WAYS - 1 do
      local seen = set.seen[k]
      if seen ~= 0 and seen >= least then
        count = count + 1
      end
    end
  end
  return count
end

return _M
