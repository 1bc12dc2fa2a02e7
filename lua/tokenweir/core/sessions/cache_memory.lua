--- What a gateway remembers of the backends' KV caches, in one piece of memory that its workers share.
--
-- `filled` counts the tokens that a backend has newly put into its cache. An engine gives up what was used longest ago,
-- so what was used when the count stood at some stamp is there as long as the free part of the cache is larger than
-- what has been filled since. `missing` is the share of what was reckoned to be there that engines then said they had
-- not found. Workers write without a lock: a lost addition makes an estimate a little worse.
local ffi = require "ffi"
local contract = require "tokenweir.contract"
local prefix_table = require "tokenweir.core.sessions.prefix_table"
local session_table = require "tokenweir.core.sessions.session_table"

local min = math.min

local BACKENDS = contract.numbers.max_backends

ffi.cdef((([[
typedef struct {
  double filled, missing;
  double work, work_at;            /* ms of its time that it was given lately, and when that was */
  double hot_at;                   /* when its load was last seen above the mark to return, ms */
  double loading;                  /* 1 while it was last seen to load its model */
  /* Of transfers of caches to it: what they took over what was reckoned (0: none yet) and when that was seen; failures
     in a row, and until when none is tried (`transfer.lua`). */
  double transfer_failures, transfer_after, transfer_ratio, transfer_at;
  double pad[6];                   /* workers write of different backends at once: no line of the cache is of two */
} tw_backend_cache;
typedef struct {
  tw_backend_cache backend[BACKENDS];
  tw_session_set sessions[SESSION_SETS];
  tw_prefix_set prefixes[PREFIX_SETS];
} tw_cache_memory;
]]):gsub("%u%u%u[%u_]+", {
  BACKENDS = BACKENDS, SESSION_SETS = session_table.SETS, PREFIX_SETS = prefix_table.SETS,
})))

local WRAP = 2 ^ 32
--- A cache that was lost is as far behind as no cache is large; and some races of workers do not bring it back.
local LOST = 1.5e9
--- Work is half forgotten after so many ms.
local HALF_LIFE = 60000
--- What is told of what was found moves trust by so much; less than this was reckoned to be there: it tells nothing.
local LEARNED, TELLING = 0.1, 256
--- Some trust is left, or nothing could win it back.
local MOST_MISSING = 0.98
--- Cached tokens that a backend is believed to hold where it tells no capacity.
local USUAL_CAPACITY = 32768

local _M = { SIZE = ffi.sizeof("tw_cache_memory"), BACKENDS = BACKENDS }

--- A new memory that knows nothing; it must be kept.
function _M.new()
  return ffi.new("tw_cache_memory")
end

--- Follows a fleet: an engine that loads its model has an empty cache.
function _M.follow(memory, fleet)
  for i = 1, fleet.size do
    local place = fleet.place[i]
    local loading = fleet.state[i] == "starting"
    local known = memory.backend[place]
    if loading and known.loading == 0 then
      known.loading = 1
      _M.lose(memory, place)
    elseif not loading then
      known.loading = 0
    end
  end
end

--- The present stamp of a backend's cache.
function _M.stamp(memory, place)
  return memory.backend[place].filled % WRAP
end

--- A backend has put so many tokens into its cache.
function _M.fill(memory, place, tokens)
  local known = memory.backend[place]
  known.filled = known.filled + tokens
end

--- ms of its own time that a backend was given lately.
local function work_of(memory, place, now)
  local known = memory.backend[place]
  local age = now - known.work_at
  return age > 0 and known.work * 0.5 ^ (age / HALF_LIFE) or known.work
end
_M.work = work_of

--- A backend was given so much work.
function _M.give_work(memory, place, ms, now)
  local known = memory.backend[place]
  known.work, known.work_at = work_of(memory, place, now) + ms, now
end

--- Everything that a backend had is gone: it was restarted, or its place is another's now.
function _M.lose(memory, place)
  local known = memory.backend[place]
  known.filled, known.missing = known.filled + LOST, 0
  known.transfer_failures, known.transfer_after = 0, 0
end

--- Tokens that were put into a backend's cache since a stamp.
local function since(memory, place, stamp)
  local tokens = memory.backend[place].filled - stamp
  -- Nearly always; the remainder takes a division.
  if tokens >= 0 and tokens < WRAP then
    return tokens
  end
  return tokens % WRAP
end

--- How much of what was used at a stamp backend i still has, at most: what is used longest ago goes first, and of one
-- prompt its end before its beginning.
-- @param row tw_load of the backend
function _M.left(memory, fleet, row, i, stamp)
  local capacity = fleet.capacity[i]
  if capacity <= 0 then
    capacity = USUAL_CAPACITY
  end
  local left = capacity - row.held - since(memory, fleet.place[i], stamp)
  return left > 0 and left or 0
end

--- Whether what stands at a stamp belongs to the backend that has the place now.
function _M.same_backend(memory, place, stamp)
  return since(memory, place, stamp) < LOST / 2
end

--- The share of what is reckoned to be there that is believed. Before anything was told: all.
function _M.trust(memory, place)
  return 1 - memory.backend[place].missing
end

--- An engine said how much of a prompt it had cached.
-- @param reckoned tokens that it was thought to have, by what is trusted; @param told tokens
function _M.learn(memory, place, reckoned, told)
  local known = memory.backend[place]
  local missing = known.missing
  reckoned = reckoned / (1 - missing)
  if reckoned >= TELLING then
    known.missing = min(MOST_MISSING, missing + LEARNED * (1 - min(1, told / reckoned) - missing))
  end
end

return _M
