--- The memory that all workers of a gateway share: who is alive, what each has reserved, the health of the backends.
--
-- One anonymous file, made by the master in init_by_lua and inherited by its workers. It survives a reload (the new
-- Lua VM of the master finds the descriptor that is open already) and a binary upgrade (the descriptor stays open over
-- exec), so old workers that still drain and new ones count in the same place. A full restart begins with zeros.
-- `nginx -t` makes one of its own and drops it. A changed layout is another file: it is never cut under its users.
--
-- A worker claims an entry by a write lock on one byte of the file. The kernel drops the lock when the process dies,
-- however it dies, so an entry whose lock can be taken belonged to a dead worker: whoever sees that clears it.
-- A worker must never close a descriptor of this file: that would drop its lock.
-- Each entry has one writer, so counts are never torn, and readers need no lock.
local bytes = require "tokenweir.core.bytes"
local ffi = require "ffi"
local clock = require "tokenweir.clock"
local contract = require "tokenweir.contract"
local layout = require "tokenweir.region_layout"
local load = require "tokenweir.core.backend.load"
local posix = require "tokenweir.posix"
local queue_memory = require "tokenweir.core.queue.memory"
local sockets = require "tokenweir.sockets"

local now_ms = clock.ms
local cast, fill = ffi.cast, ffi.fill
local same = bytes.same
local time, tonumber = os.time, tonumber

local WORKERS, MODELS, SIZE, VERSION = layout.WORKERS, layout.MODELS, layout.SIZE, layout.VERSION
-- Byte 0 .. WORKERS - 1: the entries' locks.
local GUARD_BYTE = 1000
local PEERS_BYTE = 1001
local GUARD_TRIES, GUARD_WAIT_US = 250, 200

local NAN = 0 / 0
local MAGIC = 0x7765697274776f74ULL
local HEADER = ffi.typeof("uint64_t[4]")

local _M = { WORKERS = WORKERS, BACKENDS = layout.BACKENDS, MODELS = MODELS, SIZE = SIZE }

local fd, map, flags  -- flags: uint8_t[WORKERS] over map.live
local own, own_index
local rows, row_workers, row_count, generation = {}, {}, 0, 0
local seen_live = ffi.new("uint8_t[?]", WORKERS)

--- The descriptor of this layout's region that this process or the one before exec opened already.
local function find_open()
  local header = HEADER()
  for candidate = 3, 1023 do
    if posix.pread(candidate, header, 32, 0) == 32 and header[0] == MAGIC and header[1] == VERSION
      and header[2] == SIZE then
      return candidate
    end
  end
end

--- Opens the region in the master; to be called once per Lua VM, before workers are forked.
-- @param directory string, where an unlinked file is made if the kernel refuses memory files
-- @return true; or nil, err
function _M.open(directory)
  local err
  fd = find_open()
  local fresh = not fd
  if fresh then
    fd, err = posix.anonymous_file("tokenweir-region", directory or "/tmp", SIZE)
    if not fd then
      return nil, err
    end
  end
  local at
  at, err = posix.map(fd, SIZE)
  if not at then
    return nil, "cannot map the shared region: " .. err
  end
  -- Only the mapping goes with this VM. The descriptor stays: closing it drops the locks of this process.
  map = ffi.gc(cast("tw_region *", at), function(pointer)
    posix.unmap(pointer, SIZE)
  end)
  flags = cast("uint8_t *", map.live)
  if fresh then
    map.layout, map.size, map.born = VERSION, SIZE, time()
    map.magic = MAGIC
  end
  return true
end

--- Which gateway this is, whatever it is called: the same for all its workers, over reloads and binary upgrades.
function _M.instance()
  return sockets.hostname():sub(1, 64) .. ":" .. ("%.0f"):format(tonumber(map.born))
end

--- Runs `change` while no other process changes what has several writers (names, sums of the dead).
-- @return whatever `change` returns; or nil, err if another process holds the guard for too long
function _M.guarded(change, ...)
  for _ = 1, GUARD_TRIES do
    if posix.try_lock(fd, GUARD_BYTE) then
      local result, err = change(...)
      posix.unlock(fd, GUARD_BYTE)
      return result, err
    end
    posix.sleep_us(GUARD_WAIT_US)
  end
  return nil, "another worker holds the shared region"
end

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
local function clear_guarded(index)
  if not _M.guarded(clear_entry, index) then
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
    if posix.try_lock(fd, index) then
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
    posix.unlock(fd, own_index)
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
-- @return number how many there were
function _M.sweep()
  if own_index == -1 then
    move_in()
  end
  local count = 0
  for index = 0, WORKERS - 1 do
    if flags[index] ~= 0 and index ~= own_index and posix.try_lock(fd, index) then
      clear_guarded(index)
      posix.unlock(fd, index)
      count = count + 1
    end
  end
  return count
end

--- The rows that count.
-- @return table of tw_load arrays (index 0 .. BACKENDS - 1), table of tw_worker, both valid at 1 .. count; count.
--   The tables are reused.
function _M.live()
  if not same(flags, seen_live, WORKERS) then
    ffi.copy(seen_live, flags, WORKERS)
    list_live()
  end
  return rows, row_workers, row_count
end

--- @return number that changes when a worker comes or goes
function _M.generation()
  _M.live()
  return generation
end

--- This worker's entry (tw_worker): the only one that it may write.
function _M.own()
  return own
end

--- @return tw_region the whole mapping (names, sums of the dead); for `numbering.lua` and tests
function _M.map()
  return map
end

--- @return number wall time in seconds when this gateway was started; a reload or a binary upgrade is no start
function _M.born()
  return tonumber(map.born)
end

--- @return FFI array of tw_health by a backend's place (`fleet.place[i]`), shared by all workers
function _M.health()
  return map.health
end

--- Begins to write what other gateways have in flight.
-- @return tw_load array, zeroed, to be filled; or nil while another process writes it
function _M.begin_peers()
  if not posix.try_lock(fd, PEERS_BYTE) then
    return nil
  end
  local next = 1 - map.peers_current
  fill(map.peers[next], map.peers_used[next] * load.SIZE)
  map.peers_used[next] = 0
  return map.peers[next]
end

--- Publishes what was filled since `begin_peers`.
-- @param used number, the loads 0 .. used - 1 were touched
function _M.end_peers(used, now)
  local next = 1 - map.peers_current
  map.peers_used[next] = used
  map.peers_current = next
  map.peers_at = now
  posix.unlock(fd, PEERS_BYTE)
end

--- What other gateways have in flight, or nil if that is not known by now: facts are leased.
-- @return tw_load array
function _M.peers(now)
  if map.peers_at == 0 or now - map.peers_at > contract.numbers.lease_ms then
    return nil
  end
  return map.peers[map.peers_current]
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
  local _, workers, count = _M.live()
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

--- @return array of tw_known_set: the sessions that this gateway and others served lately
function _M.known_sessions()
  return map.known
end

--- @return tw_cache_memory: where sessions live, and what the backends' caches hold
function _M.cache()
  return map.cache
end

--- Counts a request for a model.
function _M.arrive(model)
  own.arrivals[model] = own.arrivals[model] + 1
end

--- @return number requests for a model since the gateway started
function _M.arrivals(model)
  local _, workers, count = _M.live()
  local sum = map.arrivals[model]
  for k = 1, count do
    sum = sum + workers[k].arrivals[model]
  end
  return sum
end

return _M
