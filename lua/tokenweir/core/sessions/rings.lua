--- The rings of a fleet: one for each set of backends that serve a model, built anew only when that set changes.
--
-- A small ring is built at once. A large one is built in slices, so that no request waits for it; until it is there
-- the one before it serves.
local ffi = require "ffi"
local identity = require "tokenweir.core.identity"
local ring = require "tokenweir.core.sessions.ring"

local huge = math.huge
local tobit = require("bit").tobit
local next, pairs = next, pairs

local DOUBLES, INTEGERS = ffi.typeof("double[?]"), ffi.typeof("int32_t[?]")

--- Members up to which a ring is built at once: about 1 ms.
local AT_ONCE = 128

local _M = {}

--- Rings by model, none yet.
function _M.new()
  return { made = {}, building = {} }
end

local function same_members(made, fleet, pool)
  if made.size ~= pool.size then
    return false
  end
  local known, id = made.known, fleet.id
  for k = 1, pool.size do
    if not known[id[pool[k]]] then
      return false
    end
  end
  return true
end

local function begin(fleet, pool)
  local names = {}
  for k = 1, pool.size do
    names[k] = fleet.id[pool[k]]
  end
  local build = ring.begin(names, pool.size)
  build.known = {}
  for k = 1, pool.size do
    build.known[names[k]] = true
  end
  return build
end

-- Another model is often served by the very same backends.
local function shared(rings, fleet, pool)
  for _, made in pairs(rings.made) do
    if same_members(made, fleet, pool) then
      return made
    end
  end
end

--- The ring of a model's backends, made or begun where its members have changed; cheap where they have not.
-- @return the ring, or the one before while its successor is being built, or nil where there was none
function _M.ring_of(rings, fleet, pool)
  local name = pool.name
  local made, build = rings.made[name], rings.building[name]
  if made and same_members(made, fleet, pool) then
    rings.building[name] = nil
    return made
  end
  if build and same_members(build, fleet, pool) then
    return made
  end
  local other = shared(rings, fleet, pool)
  if other or pool.size <= AT_ONCE then
    rings.building[name] = nil
    made = other or ring.step(begin(fleet, pool), huge)
    rings.made[name] = made
    return made
  end
  rings.building[name] = begin(fleet, pool)
  return made
end

--- Goes on with the rings that are being built.
-- @param budget see `ring.step`
-- @return boolean whether one was completed: fleets are to be joined anew
function _M.step(rings, budget)
  local name, build = next(rings.building)
  local made = name and ring.step(build, budget)
  if made then
    rings.made[name], rings.building[name] = made, nil
  end
  return made ~= nil and name ~= nil
end

-- A share of the sessions as large as what a backend can hold, where all of them tell that.
local function base_weight(fleet, pool)
  for k = 1, pool.size do
    if fleet.capacity[pool[k]] <= 0 then
      return function(i)
        return fleet.weight[i]
      end
    end
  end
  return function(i)
    return fleet.weight[i] * fleet.capacity[i]
  end
end

local function largest(weights, size)
  local most = 0
  for m = 1, size do
    if weights[m] > most then
      most = weights[m]
    end
  end
  return most
end

-- Makes a ramping backend's weight among those of new sessions its ramp's part of its fair share, and not of what
-- another gets, which is more of a small fleet: what it leaves to the others is theirs by their weights.
local function yield(places, size)
  local settled, fresh = places.settled, places.fresh
  local full, left = 0, 0
  for m = 1, size do
    if settled[m] > 0 then
      full = full + settled[m]
    elseif fresh[m] > 0 then
      left = left + places.all[m] - fresh[m]
    end
  end
  if full == 0 then
    return
  end
  local factor = (full + left) / full
  for m = 1, size do
    if settled[m] > 0 then
      fresh[m] = settled[m] * factor
    end
  end
end

--- Joins a model's ring with a fleet: which member is which backend, and what each weighs now. Kept in `pool.places`.
-- @return table, or nil while its first ring is being built: `ring`, `index` (fleet index by member, 0: it is gone),
--   `member` (by fleet index), `seed` (of the model, for the hashes of its sessions); weights by member and the largest
--   of each: `settled` and `settled_most` (of sessions that are there already: a backend that ramps gets none), `fresh`
--   and `fresh_most` (of new ones: it gets its share), `all` and `all_most` (whatever their role); `ramps`
function _M.join(rings, fleet, pool)
  local made = _M.ring_of(rings, fleet, pool)
  if not made then
    return nil
  end
  local size = made.size
  local places = {
    ring = made, index = INTEGERS(size + 1), member = INTEGERS(fleet.size + 1), ramps = false,
    seed = tobit(identity.string(pool.name) % 4294967296),
    settled = DOUBLES(size + 1), fresh = DOUBLES(size + 1), all = DOUBLES(size + 1),
  }
  for k = 1, pool.size do
    places.member[pool[k]] = -1
  end
  local weight = base_weight(fleet, pool)
  for m = 1, size do
    local i = fleet.index[made.names[m]]
    if i and places.member[i] ~= 0 then
      local w = weight(i)
      places.index[m], places.member[i] = i, m
      places.all[m] = w
      if fleet.role[i] == "active" then
        local admit = fleet.admit[i]
        places.fresh[m] = w * admit
        places.settled[m] = admit >= 1 and w or 0
        places.ramps = places.ramps or admit < 1
      end
    end
  end
  for k = 1, pool.size do
    if places.member[pool[k]] == -1 then
      places.member[pool[k]] = 0
    end
  end
  if places.ramps then
    yield(places, size)
  end
  places.all_most, places.fresh_most = largest(places.all, size), largest(places.fresh, size)
  places.settled_most = largest(places.settled, size)
  if places.fresh_most == 0 then
    places.fresh, places.fresh_most = places.all, places.all_most
  end
  if places.settled_most == 0 then
    places.settled, places.settled_most = places.fresh, places.fresh_most
  end
  pool.places = places
  return places
end

return _M
