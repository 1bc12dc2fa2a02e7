--- What is in flight: this worker's reservations, and the sum over all workers, other gateways and foreign load.
--
--   local view = ledger.view(known, candidates, count, now)   -- for core/policy.pick
--   ledger.claim(r, fleet, index, now)
--   ledger.first_token(r); ledger.progress(r, tokens); ledger.release(r)
--
-- A request is counted on the place that it was reserved on (`r.place`), whatever becomes of the fleet, and taken off
-- exactly once. A worker that dies takes its row with it (`scoreboard.lua`).
local load = require "tokenweir.core.backend.load"
local policy = require "tokenweir.core.policy"
local room = require "tokenweir.core.backend.room"
local region = require "tokenweir.region"
local lingering = require "tokenweir.lingering"
local scoreboard = require "tokenweir.scoreboard"
local step_time = require("tokenweir.core.backend.step_time").of

local live_rows, own_entry = scoreboard.live, scoreboard.own
local peers_at = region.peers
local add_buckets, add_totals, clear_buckets = load.add_buckets, load.add_totals, load.clear_buckets
local copy_totals, note_first_token, note_prefilled = load.copy_totals, load.first_token, load.prefilled
local note_progress, put_on, take_off = load.progress, load.reserve, load.release
local ffi_new = require("ffi").new
local is_exceeded, is_tight = room.is_exceeded, room.is_tight
local floor, setmetatable = math.floor, setmetatable

--- Output of a foreign request where no model's figures are known, tokens.
local FOREIGN_OUTPUT = 256

local _M = {}

local view = policy.new_view()
local sums, sums_size
local afterwards = load.new(0)
-- Of a large fleet few are looked at in a pick, so each is summed when it is first asked for: summed_at[i] == turn.
local summed_at, turn
local foreign, foreign_generation, foreign_stale
local rows, row_count, peers, fleet

-- Requests that do not stream show no progress; `advance` estimates it. unseen[k].unseen_at == k.
local unseen, unseen_count = {}, 0

--- The mean output of all models, by how often they are asked for.
local function usual_output(stats)
  local sum, count = 0, 0
  for _, figures in pairs(stats and stats.models or {}) do
    sum, count = sum + figures.mean * figures.count, count + figures.count
  end
  return count > 0 and sum / count or FOREIGN_OUTPUT
end

local function build_foreign(known)
  foreign_generation, foreign_stale = known.generation, known.stale
  foreign = nil
  if known.stale then
    return
  end
  local each = usual_output(known.stats)
  for i = 1, known.fleet.size do
    local requests = known.fleet.foreign_requests[i]
    if requests > 0 then
      foreign = foreign or load.new(known.fleet.size)
      load.add_foreign(foreign[i], requests, known.fleet.foreign_tokens[i], each)
    end
  end
end

local function add_up(i, sum)
  local place = fleet.place[i]
  -- There is one row at least: this worker's.
  copy_totals(sum, rows[1][place])
  for k = 2, row_count do
    add_totals(sum, rows[k][place])
  end
  if peers then
    add_totals(sum, peers[place])
  end
  if foreign then
    add_totals(sum, foreign[i])
  end
end

local function total(_, i)
  if summed_at[i] ~= turn then
    summed_at[i] = turn
    add_up(i, sums[i])
  end
  return sums[i]
end

local when_asked = setmetatable({}, { __index = total })

local function fill_buckets(i)
  local sum, place = sums[i], fleet.place[i]
  clear_buckets(sum)
  for k = 1, row_count do
    add_buckets(sum, rows[k][place])
  end
  if peers then
    add_buckets(sum, peers[place])
  end
  if foreign then
    add_buckets(sum, foreign[i])
  end
end

view.fill_buckets = fill_buckets

--- The view that policies pick by, with the totals of the candidates summed, at the latest when they are looked at.
-- @param known table, `state.current()` with a fleet
-- @param candidates fleet indices at 1 .. count
-- @return table, reused: see `core/policy/init.lua`
function _M.view(known, candidates, count, now)
  fleet = known.fleet
  if view.fleet ~= fleet then
    view.fleet = fleet
    view.settings = policy.settings(known.thresholds)
    if not sums or sums_size < fleet.size then
      sums, sums_size = load.new(fleet.size), fleet.size
      summed_at, turn = ffi_new("double[?]", fleet.size + 1), 0
    end
  end
  if foreign_generation ~= known.generation or foreign_stale ~= known.stale then
    build_foreign(known)
  end
  view.now, view.stale = now, known.stale
  local _
  rows, _, row_count = live_rows()
  peers = peers_at(now)
  turn = turn + 1
  if count > view.settings.score_all_up_to then
    view.load = when_asked
  else
    view.load = sums
    for c = 1, count do
      local i = candidates[c]
      summed_at[i] = turn
      add_up(i, sums[i])
    end
  end
  return view
end

--- @return number of sequences that this gateway has in flight at one place
function _M.count(place)
  local live, _, count = live_rows()
  local n = 0
  for k = 1, count do
    n = n + live[k][place].n
  end
  return n
end

--- All that this gateway has in flight at one place, summed into a row.
-- @param into tw_load
-- @return tw_load the same
function _M.sum(into, place)
  load.clear(into)
  local live, _, count = live_rows()
  for k = 1, count do
    load.add(into, live[k][place])
  end
  return into
end

--- Reserves a request on a backend; before the next pick.
-- @param r table, see `core/backend/load.lua`; `r.stream` tells whether its progress will be seen. Written besides:
--   `place`, `reserved_at`
-- @param index of the backend in `known_fleet`
local function reserve(r, known_fleet, index, now)
  local own, place = own_entry(), known_fleet.place[index]
  if not put_on(own.load[place], r) then
    return false
  end
  r.place, r.reserved_at = place, now
  if own.used <= place then
    own.used = place + 1
  end
  -- What is to produce one token or none does not grow.
  if not r.stream and r.expected > 1 then
    unseen_count = unseen_count + 1
    unseen[unseen_count], r.unseen_at = r, unseen_count
  end
  return true
end
_M.reserve = reserve

--- Reserves a request on the backend that was picked from the last view. Another worker may have picked the same at
-- the same moment: where that is more than the backend takes, the place is given back, and whoever waits looks again.
-- @param r see `reserve`, not reserved; written besides: `reckoned`
-- @return boolean whether it is reserved
function _M.claim(r, known_fleet, index, now)
  r.reckoned = view.credit[known_fleet.place[index]]
  local seen, after = total(nil, index), afterwards[0]
  local tight = is_tight(view, index, r)
  reserve(r, known_fleet, index, now)
  if not tight then
    return true
  end
  add_up(index, after)
  if after.n - r.n <= seen.n or not is_exceeded(view, index, after) then
    return true
  end
  scoreboard.gives_back()
  _M.release(r)
  scoreboard.gave_back(now)
  return false
end

--- The first byte of a stream came.
function _M.first_token(r)
  if r.reserved then
    note_first_token(own_entry().load[r.place], r)
  end
end

--- The request's backend was brought so much of its prompt's cache.
function _M.brought(r, cached)
  if r.reserved then
    load.brought(own_entry().load[r.place], r, cached)
  end
end

--- An answer began of which no first token will be seen.
function _M.prefilled(r)
  if r.reserved then
    note_prefilled(own_entry().load[r.place], r)
  end
end

--- The request has produced so many tokens until now.
function _M.progress(r, tokens)
  if r.reserved then
    note_progress(own_entry().load[r.place], r, tokens)
  end
end

--- The prediction of the request has changed.
function _M.refine(r)
  if r.reserved then
    load.refine(own_entry().load[r.place], r)
  end
end

local function forget_unseen(r)
  local at = r.unseen_at
  if at then
    local last = unseen[unseen_count]
    unseen[at], last.unseen_at = last, at
    unseen[unseen_count] = nil
    unseen_count = unseen_count - 1
    r.unseen_at = false
  end
end

--- Takes a request off; once, however often it is called.
-- @return boolean whether something was taken off
function _M.release(r)
  if not r.reserved then
    return false
  end
  forget_unseen(r)
  return (take_off(own_entry().load[r.place], r))
end

--- The client left, but the engine may run the request on: what it holds stays reserved until telemetry shows the
-- backend idle, the backend is gone, or `until_ms`. `r` itself is free at once.
-- @param until_ms ms of the monotonic clock, its predicted end
function _M.linger(r, until_ms, now)
  if not r.reserved then
    return false
  end
  forget_unseen(r)
  return lingering.keep(own_entry().load[r.place], r, until_ms, now)
end

--- The tokens that a request which does not stream has probably produced: what is left of its time after the prefill,
-- over the backend's time per token at its present load.
local function estimate(r, known_fleet, i, now)
  local elapsed = now - r.reserved_at - known_fleet.prefill[i] * r.prompt
  if elapsed <= 0 then
    return 0
  end
  local sum = total(nil, i)
  local step = step_time(known_fleet, i, sum.n, sum.held)
  return floor(elapsed / step) * r.n
end

--- Moves on the requests that do not stream; from a timer.
function _M.advance(known, now)
  -- The sums are those of the fleet that was last picked from.
  if unseen_count == 0 or not sums or view.fleet ~= known.fleet then
    return
  end
  local index_of = {}
  for i = 1, known.fleet.size do
    index_of[known.fleet.place[i]] = i
  end
  for k = 1, unseen_count do
    local r = unseen[k]
    local i = index_of[r.place]
    if i then
      local tokens = estimate(r, known.fleet, i, now)
      if tokens > 0 then
        note_progress(own_entry().load[r.place], r, tokens)
      end
    end
  end
end

return _M
