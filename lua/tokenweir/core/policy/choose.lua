--- The candidate of least cost that has room: what the policies that reckon with memory share.
--
-- Costs come from the totals; the buckets are walked only for the cheapest one left, and only where the totals do not
-- settle whether it has room. Nothing is allocated and nothing is sorted.
local contract = require "tokenweir.contract"
local demand = require "tokenweir.core.backend.demand"
local fixed_array = require "tokenweir.core.fixed_array"
local fresh = require "tokenweir.core.fresh"
local room = require "tokenweir.core.backend.room"
local rotation = require "tokenweir.core.policy.rotation"
local stay = require "tokenweir.core.policy.stay"

local floor, huge, min = math.floor, math.huge, math.min
local glance, fits, emptiest, measure = room.glance, room.fits, room.emptiest, demand.measure
local start, place = rotation.start, rotation.at
local NO, YES = room.NO, room.YES
local decide = stay.decide
local join = fresh.load "tokenweir.core.trace_join"

local PLACES = contract.numbers.max_backends + 1

-- However dear, a backend with room stays below the mark of one without.
local MOST = 1e300

-- A backend that has more than this share of a prompt cached is worth looking at.
local CACHED_SHARE = 0.25

-- One pick runs at a time in a worker, and none yields.
local costs = fixed_array.new("double", PLACES)
local rooms = fixed_array.new("int32_t", PLACES)
local drawn = fixed_array.new("int32_t", PLACES)
local own = {}

local _M = {}

--- The first candidate of this cost, from a random place on.
local function first_of(view, count, least)
  local shift = start(view, count)
  for k = 1, count do
    local at = place(k, shift, count)
    if costs[at] == least then
      return at
    end
  end
end

-- The cheapest candidate that has room, where the one at `at` turned out to have none.
local function next_cheapest(view, candidates, count, at)
  while at do
    costs[at] = huge
    local least = huge
    for other = 1, count do
      least = min(least, costs[other])
    end
    at = least < huge and first_of(view, count, least)
    local i = at and candidates[at]
    if i and (rooms[at] == YES or fits(view, i, own)) then
      return i
    end
  end
  return nil
end

--- The cheapest candidate that has room, of a list that is scored whole. Which one it is, is asked once all costs are
-- known: whether this one is less than all before is a question that no processor guesses.
local function cheapest(view, candidates, count, cost)
  local least = huge
  for at = 1, count do
    local i = candidates[at]
    local space = glance(view, i, own)
    rooms[at] = space
    local c = huge
    if space ~= NO then
      c = min(cost(view, i, own), MOST)
    end
    costs[at] = c
    least = min(least, c)
  end
  if least == huge then
    return nil
  end
  local at = first_of(view, count, least)
  local i = candidates[at]
  if rooms[at] == YES or fits(view, i, own) then
    return i
  end
  return next_cheapest(view, candidates, count, at)
end

--- So many at random, with repetition: choosing among few keeps the gateways of a large fleet from all going to the one
-- that looks best. Those that have much of the prompt in their cache are among them.
local function draw(view, candidates, count)
  local size = view.settings.sample
  local random = view.random
  for k = 1, size do
    drawn[k] = candidates[1 + floor(random() * count)]
  end
  local credit, place_of, least, most = view.credit, view.fleet.place, CACHED_SHARE * own.prompt, 2 * size
  for k = 1, count do
    local i = candidates[k]
    if credit[place_of[i]] > least and size < most then
      size = size + 1
      drawn[size] = i
    end
  end
  return size
end

--- Collects up to `sample` candidates that have room, from a random place on, into `drawn`.
local function with_room(view, candidates, count)
  local size, most = 0, view.settings.sample
  local shift = start(view, count)
  for k = 1, count do
    local at = place(k, shift, count)
    local i = candidates[at]
    local space = glance(view, i, own)
    if space == YES or (space ~= NO and fits(view, i, own)) then
      size = size + 1
      drawn[size] = i
      if size == most then
        break
      end
    end
  end
  return size
end

--- @param view, request, candidates, count see `policy/init.lua`
-- @param cost function(view, index, own) -> number, see `cost.lua`
-- @return index, or nil and "none" (no candidate) or "full" (none has room: wait)
function _M.least(view, request, candidates, count, cost)
  if count < 1 then
    return nil, "none"
  end
  measure(request, own)
  local choice
  if count <= view.settings.score_all_up_to then
    choice = cheapest(view, candidates, count, cost)
  else
    choice = cheapest(view, drawn, draw(view, candidates, count), cost)
    if not choice then
      local size = with_room(view, candidates, count)
      choice = size > 0 and cheapest(view, drawn, size, cost) or nil
    end
  end
  join()
  if choice and request.home then
    choice, request.verdict = decide(view, request, own, candidates, count, choice, cost)
  end
  choice = choice or emptiest(view, candidates, count, own)
  if choice then
    return choice
  end
  return nil, "full"
end

return _M
