--- What lies where in the memory that all workers of a gateway share (`region.lua`): declares `tw_region`, `tw_worker`
-- and `tw_name`. Another layout needs another `VERSION`: workers that still drain go on in the old one.
local contract = require "tokenweir.contract"
local ffi = require "ffi"
local known_sessions = require "tokenweir.core.sessions.known_sessions"
local queue_memory = require "tokenweir.core.queue.memory"
require "tokenweir.core.backend.health"  -- declares tw_health
require "tokenweir.core.backend.load"  -- declares tw_load
require "tokenweir.core.sessions.cache_memory"  -- declares tw_cache_memory

local _M = {
  VERSION = 10,
  WORKERS = 128,  -- workers at once, those that drain included
  BACKENDS = contract.numbers.max_backends,
  MODELS = contract.numbers.max_models,
}

local DEFINITION = [[
typedef struct { double seen, length; char bytes[256]; double pad[6]; } tw_name;
typedef struct {
  double pid, claimed_at, used;   /* used: only the loads 0 .. used - 1 were ever touched */
  double releases, released_at;   /* places of backends it gave back, twice, odd while it does; when the last, ms */
  double waiting_bytes[CLASSES];  /* of its requests that wait, by priority class */
  double depth[MODELS], arrivals[MODELS];
  double lined[MODELS];           /* 1: something was written into that line */
  tw_line line[MODELS];
  tw_load load[BACKENDS];
} tw_worker;
typedef struct {
  uint64_t magic, layout, size, born;   /* born: wall time in seconds */
  double peers_at, peers_current, peers_used[2];
  double held_until, held_place, held_model;   /* a backend that is held for a model's first waiter */
  double releases;                /* of workers that are gone */
  double pad[4];                  /* what follows begins at a multiple of 64 bytes: a row is read for each pick */
  uint64_t live[LIVE_WORDS];
  double arrivals[MODELS];        /* of workers that are gone */
  tw_name backend_name[BACKENDS], model_name[MODELS];
  tw_health health[BACKENDS];
  tw_load peers[2][BACKENDS];
  tw_known_set known[KNOWN_SETS];
  tw_queue queue[MODELS];
  tw_cache_memory cache;
  tw_worker worker[WORKERS];
} tw_region;
]]

ffi.cdef((DEFINITION:gsub("%u%u[%u_]+", {
  MODELS = _M.MODELS, BACKENDS = _M.BACKENDS, WORKERS = _M.WORKERS, LIVE_WORDS = _M.WORKERS / 8,
  CLASSES = queue_memory.LAST_CLASS + 1, KNOWN_SETS = known_sessions.SETS,
})))

_M.SIZE = ffi.sizeof("tw_region")

return _M
