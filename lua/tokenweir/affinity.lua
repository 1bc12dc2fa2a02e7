--- Sessions and caches in this gateway: `core/sessions/affinity.lua` on the memory that its workers share.
local cache_memory = require "tokenweir.core.sessions.cache_memory"
local core = require "tokenweir.core.sessions.affinity"
local hash = require "tokenweir.core.hash"
local ledger = require "tokenweir.ledger"
local metrics = require "tokenweir.metrics"
local moves = require "tokenweir.moves"
local path = require "tokenweir.core.body.path"
local region = require "tokenweir.region"
local request = require "tokenweir.core.body.request"
local rings_of = require "tokenweir.core.sessions.rings"
local session_table = require "tokenweir.core.sessions.session_table"
local stay = require "tokenweir.core.policy.stay"

local bit = require "bit"
local ffi = require "ffi"
local dict = ngx.shared.tokenweir_documents
local add, count_cached = metrics.add, metrics.cached
local known_sessions, shared_memory = region.known_sessions, region.cache
local locate, note_end, note_served, reckon = core.locate, core.ended, core.served, core.reckon
local path_of = path.of
local int32 = ffi.typeof("int32_t")
local knows = require("tokenweir.core.sessions.known_sessions").knows
local match = string.match
local max, min = math.max, math.min
local rshift = bit.rshift
local text, tonumber = request.text, tonumber
local variable = require("tokenweir.variable").get

--- Points of a large ring that are made in one turn of a timer: about 1 ms.
local BUDGET = 40000
--- Kinds whose prompts are in caches.
local UNDERSTOOD = { chat = true, completions = true, responses = true }
--- A response's id tells it apart from every session.
local RESPONSES = 4
local LONGEST_ID = 256

local _M = {}

local PEERS_EVERY_MS = 100

local peers, peers_at = 0, 0
local rings = rings_of.new()
local everyone, everyone_count = {}, 0

-- A gateway that starts may know the fleet before the settings.
local function on(settings)
  return settings and settings.sessions.affinity
end

-- The hash of a response's id, as the halves of a session's.
local function response_key(id)
  local h = hash.string(id, RESPONSES)
  return tonumber(int32(h)), tonumber(int32(rshift(h, 32)))
end

-- The response that a request goes on from, or is about.
local function response_of(r)
  if r.kind == "responses" then
    return r.parsed.kind and text(r.parsed, "previous_response_id", LONGEST_ID)
  elseif r.kind == "other" then
    return match(path_of(variable("request_uri")), "^/v1/responses/([^/]+)")
  end
end

-- Names the backend that holds the response that a request goes on from: `r.pin`, its place, or nil.
local function pin(r)
  local id = response_of(r)
  if not id then
    return
  end
  local a, b = response_key(id)
  local memory = shared_memory()
  local known = session_table.find(memory.sessions, a, b)
  if known and known.place[0] >= 0 and cache_memory.same_backend(memory, known.place[0], known.stamp[0]) then
    r.pin = known.place[0]
  end
end

--- Takes from a request what sessions and caches are known by; once, after its body is read.
function _M.read(r, settings)
  if UNDERSTOOD[r.kind] and r.parsed.kind and settings.sessions.prefixes then
    r.blocks = r.parsed.blocks
  end
  pin(r)
end

--- The name of a model that the pinned backend of a request serves, and that its key may ask for; or nil.
-- @param allows function(key, name, public name)
function _M.model_of(known, r, key, allows)
  local i = r.pin and known.fleet.at_place[r.pin] or 0
  if i > 0 then
    for name, pool in pairs(known.fleet.models) do
      if pool.upstream_of[i] and allows(key, name, pool.name) then
        return name
      end
    end
  end
end

--- Remembers which backend made a response, here and in the other gateways.
function _M.made(r, id, now)
  if #id > LONGEST_ID then
    return
  end
  local a, b = response_key(id)
  local memory = shared_memory()
  local known = session_table.obtain(memory.sessions, a, b, now)
  session_table.serve(known, r.place)
  known.stamp[0] = cache_memory.stamp(memory, r.place)
  moves.tell(a, b, r.backend, 0, moves.RESPONSE)
end

--- Finds out where the session of a request lives; before its candidates are collected.
function _M.locate(known, r, now)
  if r.pin then
    local i = known.fleet.at_place[r.pin]
    r.pinned = i > 0 and r.pool.upstream_of[i] ~= nil and r.pin or false
  elseif on(known.settings) then
    local how = known.settings.sessions
    local elsewhere = r.session and knows(known_sessions(), r.session, r.session_set, now, how.memory_ms)
    locate(shared_memory(), rings, known.fleet, r, now, how.move_ms, elsewhere)
  end
end

--- Reckons what the candidates have of its prompt; see `core/sessions/affinity.lua`.
function _M.reckon(view, r, candidates, count)
  reckon(shared_memory(), view, r, candidates, count)
end

-- How many other gateways there are; looked up now and then, not for each request.
local function peers_of(now)
  if now - peers_at > PEERS_EVERY_MS then
    peers, peers_at = dict:get("peers") or 0, now
  end
  return peers
end

--- A request got a backend.
function _M.served(known, r, index, now)
  local how = known.settings.sessions
  local what, a, b = note_served(shared_memory(), known.fleet, r, index, now, how.move_ms,
    peers_of(now))
  if r.home then
    add("session_requests", 1, r.model, r.settled and r.verdict or "new")
  end
  if what == "move" then
    moves.tell(a, b, r.backend, r.reckoned, moves.SESSION)
  elseif what == "return" then
    moves.tell(a, b, "", 0, moves.HOME)
  end
end

--- A request that reached a backend has ended.
function _M.ended(r, outcome, prompt, output, cached, now)
  if outcome ~= "ok" or not r.reckoned then
    return
  end
  prompt = prompt or r.prompt
  note_end(shared_memory(), r, r.place, prompt, output or 0, cached, now)
  count_cached(r.model, r.reckoned, cached)
  if cached and r.brought then
    add("kv_transfer_found_tokens", min(r.brought, max(0, cached - r.reckoned)), r.model)
  end
end

--- Follows the fleet; whenever a snapshot was applied.
function _M.follow(known)
  local fleet = known.fleet
  cache_memory.follow(shared_memory(), fleet)
  if on(known.settings) then
    for _, pool in pairs(fleet.models) do
      rings_of.ring_of(rings, fleet, pool)
    end
  end
end

--- Goes on with large rings; from a timer.
function _M.build(known)
  if rings_of.step(rings, BUDGET) and known.fleet then
    for _, pool in pairs(known.fleet.models) do
      pool.places = nil
    end
  end
end

--- Looks which backends are loaded; from a timer of one worker.
function _M.watch(known, now)
  local fleet = known.fleet
  if not fleet or not on(known.settings) then
    return
  end
  if everyone_count ~= fleet.size then
    everyone, everyone_count = {}, fleet.size
    for i = 1, fleet.size do
      everyone[i] = i
    end
  end
  core.watch(shared_memory(), ledger.view(known, everyone, everyone_count, now), everyone, everyone_count, stay.use)
end

--- @return number of sessions remembered, and of those that live away from the ring now
function _M.count(now)
  return session_table.count(shared_memory().sessions, now)
end

return _M
