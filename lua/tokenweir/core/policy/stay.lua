--- Whether a session stays where it lives, or moves: to the cheapest backend, to its next choice on the ring, or home.
local ffi = require "ffi"
local contract = require "tokenweir.contract"
local ring = require "tokenweir.core.ring"
local room = require "tokenweir.core.room"

local find_member = ring.find
local glance, fits = room.glance, room.fits
local NO, YES = room.NO, room.YES
local max = math.max

local _M = {}

--- The share of backend i's memory in use: what is known to be held there, or what it says itself, if that is more.
-- Where no capacity is known, the share of the requests that it takes.
function _M.use(view, i)
  local fleet, row = view.fleet, view.load[i]
  local capacity, concurrency = fleet.capacity[i], fleet.concurrency[i]
  local use = 0
  if capacity > 0 then
    use = row.held / capacity
  elseif concurrency > 0 then
    use = row.n / concurrency
  end
  return view.stale and use or max(use, fleet.memory[i])
end
local use_of = _M.use

local function has_room(view, i, own)
  local space = glance(view, i, own)
  return space == YES or space ~= NO and fits(view, i, own)
end

local function is_candidate(view, i)
  return view.marks[i] == view.mark
end

-- Whether a session that lives elsewhere may go home: it has been quiet there for a while, and the move was not told
-- just now, maybe by a gateway that saw more.
local function is_calm(view, request)
  local hot_at, least = view.hot_at[view.fleet.slot[request.home]], view.settings.return_ms
  return request.away_ms >= least and view.now - hot_at >= least
end

-- By member of a ring: whether it is still to be asked in this walk around it.
local asked, walk = ffi.new("int32_t[?]", contract.numbers.max_backends + 1), 0

--- The next choice on the ring that is a candidate, has room and is not loaded; nil where there is none.
local function next_on_ring(view, request, own, candidates, count)
  local places = view.places
  walk = walk + 1
  local left = 0
  for k = 1, count do
    local m = places.member[candidates[k]]
    if m > 0 and candidates[k] ~= request.stay then
      asked[m] = walk
      left = left + 1
    end
  end
  while left > 0 do
    local m = find_member(places.ring, request.ring_at, places.all, places.all_most, asked, walk)
    if m == 0 then
      return nil
    end
    local i = places.index[m]
    if use_of(view, i) <= view.settings.move_load and has_room(view, i, own) then
      return i
    end
    asked[m] = 0
    left = left - 1
  end
  return nil
end

--- @param view see `policy/init.lua`, after `affinity.reckon`
-- @param request with `home`, `stay`, `settled`, `away_ms`, `ring_at` of `affinity.locate`
-- @param own see `demand.measure`
-- @param best the cheapest candidate that has room
-- @param cost function(view, index, own) -> number
-- @return index; and why: "home", "stay" (where it moved before), "back" (home again), "cost", "load", "room"
function _M.decide(view, request, own, candidates, count, best, cost)
  local settings, stay, home = view.settings, request.stay, request.home
  local usable = is_candidate(view, stay)
  local roomy = usable and (stay == best or has_room(view, stay, own))
  if not roomy or use_of(view, stay) > settings.move_load then
    local other = next_on_ring(view, request, own, candidates, count)
    view.hot_at[view.fleet.slot[stay]] = view.now
    if other then
      return other, other == home and "back" or roomy and "load" or "room"
    end
    if not roomy then
      return best, "room"
    end
  end
  local here = cost(view, stay, own)
  if stay ~= home and request.settled and is_candidate(view, home) and is_calm(view, request)
    and has_room(view, home, own) and cost(view, home, own) <= here then
    return home, "back"
  end
  if best ~= stay and cost(view, best, own) < (1 - settings.stay) * here then
    return best, best == home and "back" or "cost"
  end
  return stay, stay == home and "home" or "stay"
end

return _M
