--- Where sessions are: which backends served each of them last, what they left in its cache, and whether it lives away
-- from its place on the ring for a while. 32 bytes a session, in sets of four.
--
-- A session is two 32-bit halves of a hash: one chooses the set, the other is its tag. A full set forgets the session
-- that it heard of longest ago. Workers share the sets without a lock: a race costs a session's memory at worst.
local ffi = require "ffi"
local bit = require "bit"
local index = require("tokenweir.core.bytes").index

local band = bit.band
local floor = math.floor

ffi.cdef [[
typedef struct {
  uint32_t seen, moved_until;      /* s of the monotonic clock; seen 0: empty, moved_until 0: it lives on the ring */
  int16_t place[2];                /* of the backends that served it last and before that; -1: none */
  uint32_t tokens[2], stamp[2];    /* what each has of it, and the backend's `filled` then (`cache_memory.lua`) */
} tw_session;
typedef struct { int32_t tag[4]; tw_session way[4]; } tw_session_set;
]]

local SETS = 65536
local LAST_SET, LAST_WAY = SETS - 1, 3
local NOBODY = -1

local _M = { SETS = SETS, NOBODY = NOBODY }

--- A new empty table; it must be kept.
function _M.new()
  return ffi.new("tw_session_set[?]", SETS)
end

--- Seconds of the clock, as `seen` and `moved_until` have them.
local function second(now)
  return floor(now / 1000) + 1
end
_M.second = second

--- What is known of a session.
-- @param sets array of tw_session_set; @param a, b the halves of its hash
-- @return tw_session, or nil
local function find(sets, a, b)
  local set = sets[band(b, LAST_SET)]
  local k = index(set.tag, a, LAST_WAY + 1)
  if k < 0 or set.way[k].seen == 0 then
    return nil
  end
  return (set.way[k])
end
_M.find = find

local function oldest(set)
  local oldest_way = 0
  for k = 1, LAST_WAY do
    if set.way[k].seen < set.way[oldest_way].seen then
      oldest_way = k
    end
  end
  return oldest_way
end

--- The session's place in the table, made where it has none; it was heard of now.
-- @return tw_session
function _M.obtain(sets, a, b, now)
  local way = find(sets, a, b)
  if not way then
    local set = sets[band(b, LAST_SET)]
    local k = oldest(set)
    way = set.way[k]
    -- Never a moment with the new tag and the old session's places.
    way.seen = 0
    way.place[0], way.place[1], way.moved_until = NOBODY, NOBODY, 0
    way.tokens[0], way.tokens[1] = 0, 0
    set.tag[k] = a
  end
  way.seen = second(now)
  return way
end

--- Which of the two remembered backends it is: 0 or 1, or -1 where it is neither.
function _M.which(way, place)
  if way.place[0] == place then
    return 0
  end
  return way.place[1] == place and 1 or -1
end

--- The session is served at `place` now; the one that served it before is remembered beside it.
function _M.serve(way, place)
  if way.place[0] == place then
    return
  end
  local tokens, stamp = 0, 0
  if way.place[1] == place then
    tokens, stamp = way.tokens[1], way.stamp[1]
  end
  way.place[1], way.tokens[1], way.stamp[1] = way.place[0], way.tokens[0], way.stamp[0]
  way.place[0], way.tokens[0], way.stamp[0] = place, tokens, stamp
end

--- Whether it lives away from its place on the ring now.
function _M.moved(way, now)
  return way.moved_until ~= 0 and way.moved_until >= second(now) and way.place[0] ~= NOBODY
end

--- @return number of sessions remembered, and of those that are moved now; for the metrics
function _M.count(sets, now)
  local present, count, away = second(now), 0, 0
  for s = 0, LAST_SET do
    local set = sets[s]
    for k = 0, LAST_WAY do
      local way = set.way[k]
      if way.seen ~= 0 then
        count = count + 1
        if way.moved_until >= present then
          away = away + 1
        end
      end
    end
  end
  return count, away
end

return _M
