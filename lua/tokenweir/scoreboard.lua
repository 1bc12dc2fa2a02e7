--- Who of the workers is alive, and the row that each of them writes: what it has reserved, who waits in it, what it
-- counted. It lies in the memory that all share (`region.lua`).
--
-- A worker claims a row by a write lock on one byte of the region's file. The kernel drops the lock when the process
-- dies, however it dies, so a row whose lock can be taken belonged to a dead worker: whoever sees that clears it.
-- Each row has one writer, so counts are never torn, and readers need no lock.
local bytes = require "tokenweir.core.bytes"
local ffi = require "ffi"
local clock = require "tokenweir.clock"
local fixed_array = require "tokenweir.core.fixed_array"
local load = require "tokenweir.core.backend.load"
local queue_memory = require "tokenweir.core.queue.memory"
local region = require "tokenweir.region"

local now_ms = clock.ms
local cast, fill = ffi.cast, ffi.fill
local same = bytes.same
local guarded, try_lock, unlock = region.guarded, region.try_lock, region.unlock

local WORKERS, MODELS = region.WORKERS, region.MODELS
local NAN = 0 / 0

local _M = { WORKERS = WORKERS }

local map, flags  -- flags: uint8_t[WORKERS] over map.live
local own, own_index
local rows, row_workers, row_count, generation = {}, {}, 0, 0
local seen_live = fixed_array.new("uint8_t", WORKERS)
local swept = 0  -- entries of dead workers that were cleared and not told of by `sweep` yet

-- What a worker gave back stays counted when it goes, or a later sum would be one that was there before. Its own count
-- is odd until then: nobody takes what he sums up meanwhile for a sum.
local function keep_releases(worker)
  local releases = worker.releases
  if releases ~= 0 then
    local even = releases + releases % 2
    worker.releases = even + 1
    map.releases = map.releases + even
  end
end

--- Takes what a gone worker left out of every sum; its arrivals and releases stay counted.
local function clear_entry(index)
  local worker = map.worker[index]
  keep_releases(worker)
  flags[index] = 0
  for m = 0, MODELS - 1 do
    if worker.arrivals[m] ~= 0 then
      map.arrivals[m] = map.arrivals[m] + worker.arrivals[m]
      worker.arrivals[m] = 0
    end
  end
  for m = 0, MODELS - 1 do
    if worker.lined[m] ~= 0 then
      map.queue[m].served = map.queue[m].served + worker.line[m].served
      fill(worker.line[m], queue_memory.LINE_SIZE)
    end
  end
  fill(worker.lined, ffi.sizeof(worker.lined))
  fill(worker.depth, ffi.sizeof(worker.depth))
  fill(worker.waiting_bytes, ffi.sizeof(worker.waiting_bytes))
  if worker.used > 0 then
    fill(worker.load, worker.used * load.SIZE)
  end
  worker.used, worker.pid, worker.releases, worker.released_at = 0, 0, 0, 0
  return true
end

-- A guard held for long means a stopped process: better an inexact sum of arrivals than an entry that never clears.
-- An entry with its flag is one that its worker did not give back itself.
local function clear_guarded(index)
  if index ~= own_index and flags[index] ~= 0 then
    swept = swept + 1
  end
  if not guarded(clear_entry, index) then
    clear_entry(index)
  end
end

local function list_live()
  row_count, generation = 0, generation + 1
  for index = 0, WORKERS - 1 do
    if flags[index] ~= 0 then
      row_count = row_count + 1
      rows[row_count] = map.worker[index].load
      row_workers[row_count] = map.worker[index]
    end
  end
  if own_index == -1 then
    row_count = row_count + 1
    rows[row_count], row_workers[row_count] = own.load, own
  end
end

-- Locks an entry that nobody has, cleared.
local function free_entry()
  for index = 0, WORKERS - 1 do
    if try_lock(index) then
      clear_guarded(index)
      return index
    end
  end
end

--- Takes an entry for this worker; in init_worker.
-- A worker that finds none free, as after many reloads within the time that streams may take to finish, counts in
-- memory of its own until `sweep` finds one: it serves, but others do not see its load.
-- @param pid number
-- @return number of the entry; or nil, err
function _M.claim(pid)
  map = region.map()
  flags = cast("uint8_t *", map.live)
  local index = free_entry()
  if index then
    own, own_index = map.worker[index], index
    own.pid, own.claimed_at = pid, now_ms()
    flags[index] = 1
    return index
  end
  own, own_index = ffi.new("tw_worker"), -1
  own.pid, own.claimed_at = pid, now_ms()
  list_live()
  return nil, "all " .. WORKERS .. " entries of the shared region are taken by running workers"
end

--- Gives this worker's entry back, when it exits.
function _M.release()
  if own_index and own_index >= 0 then
    clear_guarded(own_index)
    unlock(own_index)
    own, own_index = ffi.new("tw_worker"), nil
  end
end

-- Moves what this worker counts by itself into an entry, where one is free by now.
local function move_in()
  local index = free_entry()
  if index then
    ffi.copy(map.worker[index], own, ffi.sizeof("tw_worker"))
    own, own_index = map.worker[index], index
    flags[index] = 1
  end
end

--- Clears the entries of workers that died.
-- @return number how many there were since this was last called; with one that this worker took over at its start
function _M.sweep()
  if own_index == -1 then
    move_in()
  end
  for index = 0, WORKERS - 1 do
    if flags[index] ~= 0 and index ~= own_index and try_lock(index) then
      clear_guarded(index)
      unlock(index)
    end
  end
  local count = swept
  swept = 0
  return count
end

--- The rows that count.
-- @return table of tw_load arrays (index 0 .. BACKENDS - 1), table of tw_worker, both valid at 1 .. count; count.
--   The tables are reused.
local function live()
  if not same(flags, seen_live, WORKERS) then
    ffi.copy(seen_live, flags, WORKERS)
    list_live()
  end
  return rows, row_workers, row_count
end
_M.live = live

--- @return number that changes when a worker comes or goes
function _M.generation()
  live()
  return generation
end

--- This worker's entry (tw_worker): the only one that it may write.
function _M.own()
  return own
end

--- Says that a place of a backend is about to be given back; `gave_back` must follow.
function _M.gives_back()
  own.releases = own.releases + 1
end

--- Says that it was.
function _M.gave_back(now)
  own.releases, own.released_at = own.releases + 1, now
end

--- @return number that is another one after every release in any worker, NaN while one is under way; when the last
--   was, ms
function _M.tide()
  local _, workers, count = live()
  local gone = map.releases
  local sum, last = gone, 0
  for k = 1, count do
    local worker = workers[k]
    local releases = worker.releases
    if releases % 2 ~= 0 then
      return NAN, last
    end
    sum = sum + releases
    if worker.released_at > last then
      last = worker.released_at
    end
  end
  return map.releases == gone and sum or NAN, last
end

--- Counts a request for a model.
function _M.arrive(model)
  own.arrivals[model] = own.arrivals[model] + 1
end

--- @return number requests for a model since the gateway started
function _M.arrivals(model)
  local _, workers, count = live()
  local sum = map.arrivals[model]
  for k = 1, count do
    sum = sum + workers[k].arrivals[model]
  end
  return sum
end

return _M
