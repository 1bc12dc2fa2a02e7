--- What the master does before it forks workers:
--
--   init_by_lua_block { require("tokenweir.init").start("/path/to/gateway.json") }
--
-- `config.lua` says what gateway.json holds. nginx.conf needs besides (all of it stands in nginx/nginx.conf.j2):
--
--   thread_pool tokenweir threads=4;           # in the main block: reads bodies that are in files
--   lua_shared_dict tokenweir_documents 64m;   # documents as they came
--   lua_shared_dict tokenweir_handover 64m;    # what draining workers hand over
--   lua_shared_dict tokenweir_metrics 8m;      # counters
--   lua_shared_dict tokenweir_limits 8m;       # use per API key and minute, other gateways' included
--   lua_shared_dict tokenweir_quarantine 4m;   # hashes of prompts that met crashes
--   lua_socket_log_errors off;                 # Redis being away is told once, not at every attempt
--   lua_ssl_trusted_certificate ...;           # only for TLS to Redis; the workers' user must be able to read the file
--   resolver ...;                              # only if Redis or its address may move
--   init_worker_by_lua_block { require("tokenweir.init_worker").start() }
--   exit_worker_by_lua_block { require("tokenweir.init_worker").stop() }
--   location = /metrics { content_by_lua_block { require("tokenweir.exposition").serve() } }
--
-- Every module is loaded here, so that workers of another user need not read any source file.
local config = require "tokenweir.config"
local credentials = require "tokenweir.credentials"
local disk = require "tokenweir.disk"
local region = require "tokenweir.region"

require "tokenweir.core.compiler"

local MODULES = {
  "tokenweir.events", "tokenweir.exposition", "tokenweir.init_worker", "tokenweir.lease", "tokenweir.ledger",
  "tokenweir.metrics", "tokenweir.passive_health", "tokenweir.peers", "tokenweir.poller", "tokenweir.state",
  "tokenweir.access", "tokenweir.balancer", "tokenweir.header_filter", "tokenweir.body_filter", "tokenweir.log",
  "tokenweir.errors", "tokenweir.models", "tokenweir.probes",
}

local _M = {}

--- Reads the settings, opens the shared region and the disk copy, loads the modules. An error here stops nginx with a
-- message: better than a gateway that serves without counting.
-- @param path string, of gateway.json
function _M.start(path)
  local settings, err = config.load(path)
  if not settings then
    error("tokenweir: " .. err, 0)
  end
  local ok
  ok, err = region.open(settings.state_dir)
  if not ok then
    error("tokenweir: " .. err, 0)
  end
  credentials.open(settings.backend_keys_file)
  ok, err = disk.open(settings.state_dir)
  if not ok then
    ngx.log(ngx.WARN, "tokenweir: nothing is kept on disk, so the gateway cannot start without Redis: ", err)
  end
  for _, name in ipairs(MODULES) do
    require(name)
  end
  -- What nginx.conf calls for each request: a global, since `require` would look for the module each time.
  rawset(_G, "tokenweir", {
    access = require("tokenweir.access").run,
    balancer = require("tokenweir.balancer").run, header_filter = require("tokenweir.header_filter").run,
    body_filter = require("tokenweir.body_filter").run, log = require("tokenweir.log").run,
  })
end

return _M
