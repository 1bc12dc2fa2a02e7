--- Which backends have which beginnings of prompts in their caches: by the hash of a beginning (`prefix_blocks.lua`) up
-- to eight backends, each with the stamp of when it was used there last. 76 bytes a beginning, in sets of eight; a full
-- set forgets what was asked for longest ago.
local ffi = require "ffi"
local bit = require "bit"
local index = require("tokenweir.core.bytes").index

local band, rshift, tobit = bit.band, bit.rshift, bit.tobit
local floor, max, min = math.floor, math.max, math.min
local tonumber = tonumber

ffi.cdef [[
typedef struct {
  uint32_t seen;                   /* s of the monotonic clock, 0: empty */
  int32_t place[8];                /* of backends, -1: none */
  uint32_t stamp[8];
} tw_prefix;
typedef struct { int32_t tag[8]; tw_prefix way[8]; } tw_prefix_set;
]]

local SETS = 16384
local WAYS, PLACES = 8, 8
local LAST_SET, LAST_WAY = SETS - 1, WAYS - 1
local NOBODY = -1

local _M = { SETS = SETS, PLACES = PLACES, NOBODY = NOBODY }

local function halves(hash, seed)
  return band(tonumber(band(hash, 0xFFFFFFFFULL)), LAST_SET), tobit(tonumber(rshift(hash, 32)) + seed)
end

-- The way of a tag, or -1.
local function find(set, tag)
  local k = index(set.tag, tag, WAYS)
  return k >= 0 and set.way[k].seen ~= 0 and k or -1
end

--- Finds a beginning.
-- @param sets array of tw_prefix_set; @param hash uint64_t; @param seed number that tells models apart
-- @return number for `at`, or -1
function _M.find(sets, hash, seed)
  local at, tag = halves(hash, seed)
  local k = find(sets[at], tag)
  return k < 0 and -1 or WAYS * at + k
end

--- What is known of a beginning that was found. Over a loop its number is kept rather than this, which is an object.
-- @return tw_prefix
function _M.at(sets, number)
  return (sets[rshift(number, 3)].way[band(number, LAST_WAY)])
end

local function make(set, tag)
  local oldest = 0
  for k = 1, LAST_WAY do
    if set.way[k].seen < set.way[oldest].seen then
      oldest = k
    end
  end
  local way = set.way[oldest]
  way.seen = 0
  for k = 0, PLACES - 1 do
    way.place[k] = NOBODY
  end
  set.tag[oldest] = tag
  return oldest
end

-- Where a backend is noted: in its place, else in a free one; else the next in turn goes, as stamps of different
-- backends are not in one order. Reckoned without a branch: where many backends use one beginning it would go either
-- way each time, and LuaJIT fails again and again to compile the other one.
-- @param own, free places, negative where there is none; @param other place that is given up
local function choose(own, free, other)
  local has, any = max(0, min(own + 1, 1)), max(0, min(free + 1, 1))
  return (has * max(own, 0) + (1 - has) * (any * max(free, 0) + (1 - any) * other))
end

--- Notes that a backend uses a beginning now. Of more than eight the one that used it longest ago is forgotten.
-- @param place of the backend; @param stamp its present one
function _M.note(sets, hash, seed, place, stamp, now)
  local at, tag = halves(hash, seed)
  local set = sets[at]
  local found = find(set, tag)
  local way = set.way[found >= 0 and found or make(set, tag)]
  way.seen = floor(now / 1000) + 1
  local k = choose(index(way.place, place, PLACES), index(way.place, NOBODY, PLACES), band(stamp, PLACES - 1))
  way.place[k] = place
  way.stamp[k] = stamp
end

return _M
