--- Sessions and caches, for a pick: where a session lives, and what each backend has of its prompt.
--
--   affinity.locate(memory, rings, fleet, r, now, life_ms, elsewhere)  -- r.home, r.stay, r.settled, r.away_ms
--   ... candidates (`eligible.lua`), their load ...
--   affinity.reckon(memory, view, r, candidates, count)   -- view.credit
--   ... the policy picks; stay.lua keeps the session where it is, or moves it ...
--   local moved = affinity.served(memory, fleet, r, index, now, life_ms, others)
--   affinity.ended(memory, r, place, prompt, output, cached, now)
--
-- `memory`: `cache_memory.lua`; `rings`: `rings.lua`. One pick runs at a time in a worker, and none yields.
local bit = require "bit"
local cache_memory = require "tokenweir.core.sessions.cache_memory"
local fixed_array = require "tokenweir.core.fixed_array"
local prefix_table = require "tokenweir.core.sessions.prefix_table"
local ring = require "tokenweir.core.sessions.ring"
local rings_of = require "tokenweir.core.sessions.rings"
local session_table = require "tokenweir.core.sessions.session_table"

local join = rings_of.join
local bxor, tobit = bit.bxor, bit.tobit
local max, min = math.max, math.min
local fill, left_of, same_backend, stamp_of = cache_memory.fill, cache_memory.left, cache_memory.same_backend,
  cache_memory.stamp
local give_work, learn_trust, trust_of = cache_memory.give_work, cache_memory.learn, cache_memory.trust
local find_member, position = ring.find, ring.position
local find_prefix, note_prefix, prefix_at = prefix_table.find, prefix_table.note, prefix_table.at
local find_session, obtain, moved, second = session_table.find, session_table.obtain, session_table.moved,
  session_table.second
local serve, which = session_table.serve, session_table.which
local NOBODY = session_table.NOBODY
local LAST_PLACE = prefix_table.PLACES - 1

--- A move is told again when so much of its life has passed, so it lives on as long as it is used.
local RENEW = 0.25

--- Sequences that share a step of the usual length (`fleet.lua`).
local USUAL_SEQUENCES = 16

local BACKENDS = cache_memory.BACKENDS

-- What each backend has of the prompt at hand, by place, and how many of its blocks in a row it has.
local credit = fixed_array.new("double", BACKENDS)
local depth = fixed_array.new("int32_t", BACKENDS)
local touched, touched_count = fixed_array.new("int32_t", BACKENDS), 0
-- By fleet index: whether it is a candidate.
local marks, mark = fixed_array.new("int32_t", BACKENDS + 1), 0

local _M = { credit = credit }

local function forget_credit()
  for k = 0, touched_count - 1 do
    local place = touched[k]
    credit[place], depth[place] = 0, 0
  end
  touched_count = 0
end

local function give(place, tokens)
  if tokens <= 0 then
    return
  end
  if credit[place] == 0 and depth[place] == 0 then
    touched[touched_count] = place
    touched_count = touched_count + 1
  end
  if tokens > credit[place] then
    credit[place] = tokens
  end
end

--- The places of a model's backends on their ring; joined once per fleet. Nil while the first ring is being built.
local function places_of(rings, fleet, pool)
  return pool.places or join(rings, fleet, pool)
end
_M.places = places_of

--- A session's hash on the backends of one model. The same name for two models is two sessions.
local function key_of(places, r)
  return (bxor(r.session, places.seed))
end

--- Tells where a session lives: `r.home` (the backend that the ring names), `r.stay` (where it lives by now) and
-- `r.settled` (whether it was served before), as fleet indices or nil; and for how long it has lived elsewhere.
-- @param life_ms how long a move lasts beyond its last use
-- @param elsewhere whether another gateway is known to have served it
function _M.locate(memory, rings, fleet, r, now, life_ms, elsewhere)
  r.home, r.stay, r.settled, r.away_ms = false, false, false, 0
  local pool = r.pool
  local places = r.session and places_of(rings, fleet, pool)
  if not places then
    return
  end
  local a, b = key_of(places, r), r.session_set
  local x = position(a, b)
  local home = places.index[find_member(places.ring, x, places.settled, places.settled_most)]
  if home == 0 then
    return
  end
  r.home, r.stay, r.ring_at = home, home, x
  local known = find_session(memory.sessions, a, b)
  if not known then
    r.settled = elsewhere or false
    if places.ramps and not elsewhere then
      local fresh = places.index[find_member(places.ring, x, places.fresh, places.fresh_most)]
      r.stay = fresh > 0 and fresh or home
    end
    return
  end
  r.settled = true
  if moved(known, now) then
    local place = known.place[0]
    local at = fleet.at_place[place]
    if at > 0 and places.member[at] > 0 and same_backend(memory, place, known.stamp[0]) then
      r.stay, r.away_ms = at, now + life_ms - known.moved_until * 1000
    end
  end
end

local function reckon_served(memory, view, r, known, k)
  local place = known.place[k]
  local i = place ~= NOBODY and view.fleet.at_place[place] or 0
  if i > 0 and known.tokens[k] > 0 then
    give(place, min(known.tokens[k], r.prompt, left_of(memory, view.fleet, view.load[i], i, known.stamp[k])))
  end
end

-- What the two backends that served a session last still have of it.
local function reckon_session(memory, view, places, r)
  local known = find_session(memory.sessions, key_of(places, r), r.session_set)
  if not known then
    return
  end
  reckon_served(memory, view, r, known, 0)
  reckon_served(memory, view, r, known, 1)
end

-- What the backends have of the prompt by the table of beginnings.
local function reckon_prefixes(memory, view, seed, r, blocks)
  local fleet, load = view.fleet, view.load
  local per_byte = r.prompt / blocks.bytes
  for k = 0, blocks.count - 1 do
    local found = find_prefix(memory.prefixes, blocks.hash[k], seed)
    if found < 0 then
      break
    end
    local tokens, any = blocks.bytes_to[k] * per_byte, false
    for j = 0, LAST_PLACE do
      local known = prefix_at(memory.prefixes, found)
      local place = known.place[j]
      if place ~= NOBODY and depth[place] == k then
        local i = fleet.at_place[place]
        if i > 0 and left_of(memory, fleet, load[i], i, known.stamp[j]) >= tokens then
          give(place, tokens)
          depth[place], any = k + 1, true
        end
      end
    end
    if not any then
      break
    end
  end
end

local function seed_of(places, pool)
  return places and places.seed or pool.place or 0
end

--- Reckons what each candidate has of the prompt in its cache: `view.credit`, tokens by place.
-- @param view see `policy/init.lua`, with the candidates' load
function _M.reckon(memory, view, r, candidates, count)
  forget_credit()
  view.credit = credit
  local pool = r.pool
  local places = pool.places
  if r.home then
    reckon_session(memory, view, places, r)
    mark = mark + 1
    for k = 1, count do
      marks[candidates[k]] = mark
    end
    view.places, view.marks, view.mark = places, marks, mark
  end
  local blocks = r.blocks
  if blocks and blocks.count > 0 then
    reckon_prefixes(memory, view, seed_of(places, pool), r, blocks)
  end
  for k = 0, touched_count - 1 do
    local place = touched[k]
    credit[place] = min(credit[place] * trust_of(memory, place), r.prompt)
  end
  view.memory = memory
end

-- Calls itself for the next block: LuaJIT gives a loop up that mostly runs once, and all that it stands in.
local function note_from(memory, blocks, k, seed, place, stamp, now)
  note_prefix(memory.prefixes, blocks.hash[k], seed, place, stamp, now)
  if k + 1 < blocks.count then
    return note_from(memory, blocks, k + 1, seed, place, stamp, now)
  end
end

local function note_blocks(memory, r, place, now)
  local blocks = r.blocks
  if blocks and blocks.count > 0 then
    return note_from(memory, blocks, 0, r.cache_seed, place, stamp_of(memory, place), now)
  end
end

--- A request goes to a backend: its session is remembered there.
-- @param life_ms how long a move lasts beyond its last use
-- @param others number of other gateways: they fill the caches too, unseen
-- @return "move" or "return" where other gateways must hear of it, else nil; and the halves of the session's hash.
--   Where its session was elsewhere until now, `r.moved_from` is that place and `r.moved_tokens` what is cached there.
function _M.served(memory, fleet, r, index, now, life_ms, others)
  local place = fleet.place[index]
  local places = r.pool.places
  r.reckoned, r.cache_seed, r.others = credit[place], seed_of(places, r.pool), others
  note_blocks(memory, r, place, now)
  give_work(memory, place, max(0, r.prompt - r.reckoned) * fleet.prefill[index]
    + (r.mean or 0) * r.n * fleet.usual_step[index] / USUAL_SEQUENCES, now)
  if not r.home then
    return nil
  end
  if r.settled and r.stay ~= index then
    r.moved_from = fleet.place[r.stay]
    r.moved_tokens = credit[r.moved_from]
  end
  local a, b = key_of(places, r), r.session_set
  local known = obtain(memory.sessions, a, b, now)
  local stayed = known.place[0] == place
  serve(known, place)
  known.stamp[0] = stamp_of(memory, place)
  if index == r.home then
    if known.moved_until == 0 then
      return nil
    end
    known.moved_until = 0
    return "return", a, b
  end
  local until_s = second(now + life_ms)
  if stayed and known.moved_until ~= 0 and known.moved_until - second(now) > (1 - RENEW) * life_ms / 1000 then
    return nil
  end
  known.moved_until = until_s
  return "move", a, b
end

--- A request that was served well has ended: its backend has the prompt and the answer in its cache.
-- @param place of the backend; @param prompt, output tokens; @param cached tokens that the engine says it had, or nil
function _M.ended(memory, r, place, prompt, output, cached, now)
  if cached then
    learn_trust(memory, place, min(r.reckoned, prompt), cached)
  end
  -- Only now: what is in flight counts as held. What was brought there is new there too.
  local found = cached and cached - (r.brought or 0) or r.reckoned
  fill(memory, place, (prompt - min(prompt, max(0, found)) + output) * (1 + r.others))
  note_blocks(memory, r, place, now)
  if not r.home then
    return
  end
  local a, b = bxor(r.session, tobit(r.cache_seed)), r.session_set
  local known = find_session(memory.sessions, a, b)
  local k = known and which(known, place) or -1
  if k >= 0 then
    known.tokens[k], known.stamp[k] = prompt + output, stamp_of(memory, place)
  end
end

--- A move that another gateway told of.
-- @param place of the backend where it lives now, or nil: back on the ring; @param tokens that it has there
-- @param age_ms since it was told
function _M.learn(memory, a, b, place, tokens, now, age_ms, life_ms)
  if age_ms >= life_ms then
    return
  end
  local known = obtain(memory.sessions, a, b, now)
  if not place then
    known.moved_until = 0
    return
  end
  known.moved_until = second(now + life_ms - age_ms)
  -- What it told itself a gateway reads too, for the order's sake; it knows better by now what is there.
  if known.place[0] ~= place then
    serve(known, place)
    known.tokens[0] = tokens
    known.stamp[0] = stamp_of(memory, place)
  end
end

--- Marks the backends whose load is above the mark to return; several times a second.
-- @param use function(view, index) -> share of its memory in use, see `policy/stay.lua`
function _M.watch(memory, view, candidates, count, use)
  local place_of, mark_to_return = view.fleet.place, view.settings.return_load
  for k = 1, count do
    local i = candidates[k]
    if use(view, i) >= mark_to_return then
      memory.backend[place_of[i]].hot_at = view.now
    end
  end
end

return _M
