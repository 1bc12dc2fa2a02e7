--- Which backends have which beginnings of prompts in their caches: by the hash of a beginning (`prefix_blocks.lua`) up
-- to eight backends, each with the stamp of when it was used there last. 56 bytes a beginning, in sets of eight; a full
-- set forgets what was asked for longest ago.
local ffi = require "ffi"
local bit = require "bit"

local band, rshift = bit.band, bit.rshift
local floor = math.floor
local tonumber = tonumber

ffi.cdef [[
typedef struct {
  uint32_t tag, seen;              /* seen: s of the monotonic clock, 0: empty */
  int16_t place[8];                /* of backends, -1: none */
  uint32_t stamp[8];
} tw_prefix;
typedef struct { tw_prefix way[8]; } tw_prefix_set;
]]

local SETS = 16384
local LAST_SET, LAST_WAY, LAST_PLACE = SETS - 1, 7, 7
local NOBODY = -1
local WRAP = 2 ^ 32

local _M = { SETS = SETS, PLACES = LAST_PLACE + 1, NOBODY = NOBODY }

local function halves(hash, seed)
  return band(tonumber(band(hash, 0xFFFFFFFFULL)), LAST_SET), (tonumber(rshift(hash, 32)) + seed) % WRAP
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

--- @param sets array of tw_prefix_set; @param hash uint64_t; @param seed number that tells models apart
-- @return tw_prefix, or nil
function _M.find(sets, hash, seed)
  local at, tag = halves(hash, seed)
  return find(sets[at], tag)
end

local function make(set, tag)
  local way = set.way[0]
  for k = 1, LAST_WAY do
    if set.way[k].seen < way.seen then
      way = set.way[k]
    end
  end
  way.seen = 0
  for k = 0, LAST_PLACE do
    way.place[k] = NOBODY
  end
  way.tag = tag
  return way
end

--- Notes that a backend uses a beginning now. Of more than eight the one that used it longest ago is forgotten.
-- @param place of the backend; @param stamp its present one
function _M.note(sets, hash, seed, place, stamp, now)
  local at, tag = halves(hash, seed)
  local set = sets[at]
  local way = find(set, tag) or make(set, tag)
  way.seen = floor(now / 1000) + 1
  local free = 0
  for k = 0, LAST_PLACE do
    local there = way.place[k]
    if there == place then
      way.stamp[k] = stamp
      return
    elseif there == NOBODY then
      free = k
    end
  end
  if way.place[free] ~= NOBODY then
    -- Stamps of different backends are not in one order; the next in turn goes.
    free = band(stamp, LAST_PLACE)
  end
  way.place[free], way.stamp[free] = place, stamp
end

return _M
