--- Whether a session stays where it lives, or moves: to the cheapest backend, to its next choice on the ring, or home.
local contract = require "tokenweir.contract"
local cache_memory = require "tokenweir.core.sessions.cache_memory"
local fixed_array = require "tokenweir.core.fixed_array"
local ring = require "tokenweir.core.sessions.ring"
local room = require "tokenweir.core.backend.room"
local transfer = require "tokenweir.core.sessions.transfer"

local find_member, work_of = ring.find, cache_memory.work
local glance, fits = room.glance, room.fits
local NO, YES = room.NO, room.YES
local weigh, works = transfer.weigh, transfer.works
local huge, max, min = math.huge, math.max, math.min

--- A new session goes to no backend that was given so many times its share of the work lately.
local SHARE_OF_WORK = 1.1
--- Less work than this, some 6 % of a minute's, is no load.
local LIGHT_MS = 5000
--- So many others are reckoned to wait while a prompt is computed anew. With fewer, sessions move for the sake of
-- predicted lengths that then do not come true (`make bench-sessions`).
local ANEW = 20
--- Of a prompt, that it is worth another place to have it cached.
local GOOD_PART = 0.25

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
  local hot_at, least = view.memory.backend[view.fleet.place[request.home]].hot_at, view.settings.return_ms
  return request.away_ms >= least and view.now - hot_at >= least
end

-- What it costs the others that backend i computes anew what the session has where it stays, ms: every sequence there
-- stands still meanwhile, and whoever comes meanwhile waits.
local function again(view, stay, i)
  local fleet, credit = view.fleet, view.credit
  local tokens = credit[fleet.place[stay]] - credit[fleet.place[i]]
  return tokens > 0 and ANEW * tokens * fleet.prefill[i] or 0
end

-- What it costs to go from where the session stays to backend i: the prompt computed anew there, or, where that is
-- cheaper and known to work, its cache brought along. Of what a backend computes anew a transfer takes its share of
-- the time, and nobody else stands still meanwhile.
local function elsewhere(view, request, own, stay, i, cost)
  local anew = cost(view, i, own)
  local most = anew + again(view, stay, i)
  local how, fleet = view.transfer, view.fleet
  local place = fleet.place[i]
  if not how or not request.settled or not works(view.memory, place) then
    return most
  end
  local from, credit = view.load[stay], view.credit
  local has = credit[place]
  local ms, prefill, _, saved = weigh(view.memory, fleet, request, how, stay, i, credit[fleet.place[stay]], has,
    from.prefill * fleet.prefill[stay], view.now)
  if not ms then
    return most
  end
  credit[place] = has + saved
  local brought = cost(view, i, own)
  credit[place] = has
  return min(most, brought + ms / prefill * (anew - brought))
end

-- The candidate that it costs least to go to, where caches can be brought along: the one where the prompt is cached is
-- the cheapest by itself as long as that is not reckoned. A list too long to be scored whole is left at `best`.
local function cheapest_move(view, request, own, stay, candidates, count, best, cost)
  if not view.transfer or not request.settled or count > view.settings.score_all_up_to then
    return best, best ~= stay and elsewhere(view, request, own, stay, best, cost) or huge
  end
  local found, least = best, best ~= stay and elsewhere(view, request, own, stay, best, cost) or huge
  for k = 1, count do
    local i = candidates[k]
    if i ~= stay and i ~= best and works(view.memory, view.fleet.place[i]) and has_room(view, i, own) then
      local c = elsewhere(view, request, own, stay, i, cost)
      if c < least then
        found, least = i, c
      end
    end
  end
  return found, least
end

-- By member of a ring: whether it is still to be asked in this walk around it.
local asked, walk = fixed_array.new("int32_t", contract.numbers.max_backends + 1), 0

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

-- The place of a new session, among the backends that were given no more than their share of the work lately
-- (consistent hashing with bounded loads; Mirrokni, Thorup, Zadimoghaddam, SODA 2018): the one that has most of the
-- prompt, if that is a good part of it; else the first on the ring. A session stays for many requests, so what is in
-- flight at this moment says little.
local function settle(view, request, own, candidates, count)
  local memory, place_of, credit, places = view.memory, view.fleet.place, view.credit, view.places
  local admit, sum, peers = view.fleet.admit, 0, 0
  for k = 1, count do
    local i = candidates[k]
    if admit[i] >= 1 then
      sum, peers = sum + work_of(memory, place_of[i], view.now), peers + 1
    end
  end
  if admit[request.stay] < 1 or peers == 0 then
    return request.stay
  end
  local most = max(LIGHT_MS, SHARE_OF_WORK * sum / peers)
  walk = walk + 1
  local best, cached, left = nil, credit[place_of[request.stay]] + GOOD_PART * own.prompt, 0
  for k = 1, count do
    local i = candidates[k]
    local m = places.member[i]
    if m > 0 and admit[i] >= 1 and work_of(memory, place_of[i], view.now) <= most
      and (i == request.stay or has_room(view, i, own)) then
      asked[m] = walk
      left = left + 1
      if credit[place_of[i]] > cached then
        best, cached = i, credit[place_of[i]]
      end
    end
  end
  if best or left == 0 then
    return best or request.stay
  elseif is_candidate(view, request.stay) and asked[places.member[request.stay]] == walk then
    return request.stay
  end
  local m = find_member(places.ring, request.ring_at, places.fresh, places.fresh_most, asked, walk)
  return m > 0 and places.index[m] or request.stay
end

--- @param view see `policy/init.lua`, after `affinity.reckon`
-- @param request with `home`, `stay`, `settled`, `away_ms`, `ring_at` of `affinity.locate`
-- @param own see `demand.measure`
-- @param best the cheapest candidate that has room
-- @param cost function(view, index, own) -> number
-- @return index; and why: "home", "stay" (where it moved before), "back" (home again), "cost", "load", "room"
function _M.decide(view, request, own, candidates, count, best, cost)
  local settings, stay, home = view.settings, request.stay, request.home
  if not request.settled then
    stay = settle(view, request, own, candidates, count)
  end
  local usable = is_candidate(view, stay)
  local roomy = usable and (stay == best or has_room(view, stay, own))
  if not roomy or use_of(view, stay) > settings.move_load then
    local other = next_on_ring(view, request, own, candidates, count)
    view.memory.backend[view.fleet.place[stay]].hot_at = view.now
    if other then
      return other, other == home and "back" or roomy and "load" or "room"
    end
    if not roomy then
      return best, "room"
    end
  end
  local here = cost(view, stay, own)
  if stay ~= home and request.settled and is_candidate(view, home) and is_calm(view, request)
    and has_room(view, home, own) and elsewhere(view, request, own, stay, home, cost) <= here then
    return home, "back"
  end
  local other, least = cheapest_move(view, request, own, stay, candidates, count, best, cost)
  if least < (1 - settings.stay) * here then
    return other, other == home and "back" or "cost"
  end
  return stay, stay == home and "home" or "stay"
end

return _M
