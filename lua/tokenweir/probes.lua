--- GET /healthz: the gateway is alive. GET /readyz: it has a snapshot and a backend that can be used.
local clock = require "tokenweir.clock"
local current_context = require "tokenweir.current_context"
local pick = require "tokenweir.pick"
local state = require "tokenweir.state"

local ngx = ngx

local _M = {}

local function say(status, text)
  ngx.status = status
  current_context.get().answered = true
  local header = ngx.header
  header["Content-Type"] = "text/plain; charset=utf-8"
  header["Cache-Control"] = "no-store"
  header["Content-Length"] = #text + 1
  ngx.print(text, "\n")
end

--- Whether requests can be served, and why not.
-- @return boolean, string
function _M.readiness(now)
  local known = state.current(now)
  if not known.settings then
    return false, "no settings: is the sidecar running, and Redis?"
  elseif not known.fleet then
    return false, "no snapshot: is the sidecar running, and Redis?"
  end
  if known.fleet.size == 0 then
    return false, "no backends are configured"
  elseif pick.possible(known, now) then
    return true, known.stale and "ready (the snapshot is stale)" or "ready"
  end
  return false, "no backend is usable"
end

function _M.alive()
  return say(200, "alive")
end

function _M.ready()
  local ready, why = _M.readiness(clock.ms())
  return say(ready and 200 or 503, why)
end

return _M
