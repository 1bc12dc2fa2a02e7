--- Levels 1 and 2 of the breaker, as the snapshot has them: new sessions are refused, low priority is dropped.
local errors = require "tokenweir.errors"
local metrics = require "tokenweir.metrics"
local sessions = require "tokenweir.sessions"
local state = require "tokenweir.state"

local get_method = ngx.req.get_method
local control_of = state.control

--- Told where the sidecar knows no better.
local RETRY_AFTER_S = 5

local _M = {}

local function refuse(r, control, level, code, message)
  metrics.add("breaker_refusals", 1, r.model, level)
  return errors.send(503, code, message, nil, (control.retry_after_ms or RETRY_AFTER_S * 1000) / 1000)
end

local function drop(r, control)
  return refuse(r, control, "2", "low_priority_dropped",
    "The backends' memory is full, and requests of low priority are dropped. Try again later, or ask with a higher "
    .. "X-Priority.")
end

-- What reads or deletes something that is there already begins nothing.
local function begins_work(r)
  if r.kind ~= "other" then
    return true
  end
  local method = get_method()
  return method ~= "GET" and method ~= "DELETE" and method ~= "HEAD"
end

--- Ends a request that the breaker turns away.
-- @param control `state.control()` of its model
function _M.check(r, control, settings, now)
  if control.drop_low and r.priority == "low" then
    return drop(r, control)
  elseif control.refuse_new and begins_work(r) and not sessions.known(r, settings, now) then
    return refuse(r, control, "1", "new_sessions_rejected",
      "The backends' memory is full: sessions that are served already go on, new ones are refused. Try again later.")
  end
end

--- Whether a waiting request of low priority has to go.
function _M.drops(r, known)
  local pool = known.fleet.models[r.model]
  return pool and control_of(known, pool).drop_low or false
end

--- Ends a waiting request of low priority.
function _M.drop(r)
  return drop(r, r.pool.control)
end

return _M
