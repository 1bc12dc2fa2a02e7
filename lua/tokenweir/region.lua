--- The memory that all workers of a gateway share: what each has reserved (`scoreboard.lua`), the health of the
-- backends, what other gateways have in flight, sessions and caches.
--
-- One anonymous file, made by the master in init_by_lua and inherited by its workers. It survives a reload (the new
-- Lua VM of the master finds the descriptor that is open already) and a binary upgrade (the descriptor stays open over
-- exec), so old workers that still drain and new ones count in the same place. A full restart begins with zeros.
-- `nginx -t` makes one of its own and drops it. A changed layout is another file: it is never cut under its users.
--
-- A worker must never close a descriptor of this file: that would drop its locks.
local ffi = require "ffi"
local contract = require "tokenweir.contract"
local layout = require "tokenweir.region_layout"
local load = require "tokenweir.core.backend.load"
local posix = require "tokenweir.posix"
local sockets = require "tokenweir.sockets"

local cast, fill = ffi.cast, ffi.fill
local time, tonumber = os.time, tonumber

local LEASE_MS = contract.numbers.lease_ms
local SIZE, VERSION = layout.SIZE, layout.VERSION
-- Bytes of the file that are locked; 0 .. WORKERS - 1 are those of the workers' rows.
local GUARD_BYTE = 1000
local PEERS_BYTE = 1001
local GUARD_TRIES, GUARD_WAIT_US = 250, 200

local MAGIC = 0x7765697274776f74ULL
local HEADER = ffi.typeof("uint64_t[4]")

local _M = { WORKERS = layout.WORKERS, BACKENDS = layout.BACKENDS, MODELS = layout.MODELS, SIZE = SIZE }

local fd, map
-- What is asked for on the way of requests: `map.health` made anew each time would be a new object each time.
local health, known_sessions, cache, peers

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
  health, known_sessions, cache = map.health, map.known, map.cache
  peers = { [0] = map.peers[0], map.peers[1] }
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

--- Takes the lock of a byte of the file: as long as this process lives, at most.
-- @return boolean, whether nobody else has it
function _M.try_lock(byte)
  return posix.try_lock(fd, byte)
end

--- Gives it back.
function _M.unlock(byte)
  posix.unlock(fd, byte)
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
  return health
end

--- Begins to write what other gateways have in flight.
-- @return tw_load array, zeroed, to be filled; or nil while another process writes it
function _M.begin_peers()
  if not posix.try_lock(fd, PEERS_BYTE) then
    return nil
  end
  local next = 1 - map.peers_current
  fill(map.peers[next], map.peers_used[next] * load.SIZE)
  -- A worker that dies before `end_peers` may have touched any of them.
  map.peers_used[next] = layout.BACKENDS
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
  if map.peers_at == 0 or now - map.peers_at > LEASE_MS then
    return nil
  end
  return peers[map.peers_current]
end

--- @return array of tw_known_set: the sessions that this gateway and others served lately
function _M.known_sessions()
  return known_sessions
end

--- @return tw_cache_memory: where sessions live, and what the backends' caches hold
function _M.cache()
  return cache
end

return _M
