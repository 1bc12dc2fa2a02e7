--- While the sidecar is silent nobody looks at the engines, and what requests meet does not tell a frozen engine that
-- has no stream flowing from one that processes a long prompt. So the gateway asks such a backend for a page, outside
-- of any request: one that answers anything is alive; one that does not hangs.
--
-- This decides when to ask and what an answer means; `tokenweir/liveness.lua` asks.
local health = require "tokenweir.core.backend.health"
local traits = require("tokenweir.core.backend.engine").traits

local max = math.max

--- For so long an answer is waited for, ms.
local ANSWER_MS = 1500
--- The sidecar is silent: three of its snapshots have not come, ms.
local SILENT_MS = 1500
--- After an answer the backend is left alone for so long, ms.
local PAUSE_MS = 1500
--- One that hangs stays out at least until it has been asked again, ms.
local HOLD_MS = 2 * (ANSWER_MS + PAUSE_MS)

local _M = { ANSWER_MS = ANSWER_MS, SILENT_MS = SILENT_MS, PAUSE_MS = PAUSE_MS, HOLD_MS = HOLD_MS }

--- How long nothing has come from a backend that has work. To be called at every turn, since it notes when it began.
-- @param h tw_health; written: `silent_since`
-- @param n sequences in flight there
-- @return number ms
function _M.silence(h, n, now)
  if n == 0 then
    h.silent_since = 0
    return 0
  elseif h.silent_since == 0 then
    h.silent_since = now
  end
  return max(0, now - max(h.silent_since, h.last_byte))
end

--- Whether the backend is to be asked now.
-- @param engine string, what runs there
-- @param silence ms, of `silence`
-- @param snapshot_age ms
-- @param settings `settings.health`
function _M.doubtful(h, engine, silence, snapshot_age, now, settings)
  if snapshot_age < SILENT_MS or not traits(engine).answers then
    return false
  elseif health.state(h, now) ~= health.CLOSED then
    return h.hung ~= 0
  end
  -- When the answer is late, it has been silent for as long as a stream is that hangs.
  local limit = max(settings.hang_ms, settings.hang_gaps * h.gap)
  return silence >= max(limit - ANSWER_MS, limit / 3)
end

--- It answered: one that had hung is tried by a request.
function _M.answered(h, now)
  if h.hung ~= 0 and health.state(h, now) == health.EJECTED then
    h.ejected_until, h.probe_until = now, 0
  end
end

--- It did not answer.
-- @param asked ms, when it was asked: a byte of a stream since then counts for more
-- @return boolean whether it was ejected by this
function _M.unanswered(h, asked, now, settings)
  if h.last_byte >= asked then
    return false
  end
  local ejected = health.hang(h, now, settings)
  if h.hung ~= 0 then
    h.ejected_until = max(h.ejected_until, now + HOLD_MS)
  end
  return ejected
end

return _M
