--- How a request ended, and what that says of its backend.
local client = require "tokenweir.client"
local deadline = require "tokenweir.deadline"
local health = require "tokenweir.core.backend.health"
local passive_health = require "tokenweir.passive_health"
local quarantine = require "tokenweir.quarantine"
local state = require "tokenweir.state"
local upstream_log = require "tokenweir.upstream_log"
local usage = require "tokenweir.core.answer.usage"

local is_failure = health.counts
local is_page = usage.is_page
local note_success = passive_health.success
local CLIENT_GONE = 499
-- A client that reads nothing is given up after nginx's `send_timeout`, and no byte of the backend's comes before that.
local READS_MS = 55000

local _M = {}

-- nginx gave up on an answer by itself: what came could not be read, as a chunk without a length.
local function unreadable(r, now)
  return now - (r.last_byte or r.arrived) < READS_MS and client.connected()
end

-- An engine may say in an answer of 200 that it failed.
local function tells_error(r)
  local told = r.sse or r.usage
  return told and told.error
end

-- Nothing at all, or a page to be read by people.
local function tells_nothing(r)
  return not r.first_byte or r.usage and is_page(r.usage)
end

-- The answer had begun.
local function of_answer(r, now)
  if r.late then
    return "timeout"
  elseif r.silent then
    return "timeout", "status"
  elseif r.broken then
    return "upstream_broke", "broke"
  elseif not r.ended then
    if unreadable(r, now) then
      return "upstream_broke", "broke"
    end
    return "client_gone"
  end
  local status = r.header
  if is_failure(status) then
    return "upstream_error", "status"
  elseif status >= 500 then
    return "upstream_error", health.refuses(status) and "refusal" or nil
  elseif tells_error(r) then
    return "upstream_error", "error"
  elseif status >= 400 then
    return "refused", health.refuses(status) and "refusal" or nil
  elseif r.kind ~= "other" and (status >= 300 or tells_nothing(r)) then
    -- No engine answers a prompt by a redirect, by a page or by nothing; what stands before one does, and fast.
    return "refused", "refusal"
  end
  return "ok", "success"
end

-- No answer had begun.
local function of_none(r, status, now)
  if status == CLIENT_GONE then
    return "client_gone"
  elseif r.unconnected or r.tries == 0 then
    -- No backend was asked: what went wrong is the gateway's own.
    return "refused"
  elseif r.refused then
    return r.refused == 429 and "refused" or "upstream_error"
  elseif not r.cut and upstream_log.sent() == 0 then
    return "upstream_error", "connect"
  elseif status == 504 then
    if deadline.reached(r, now) then
      return "timeout"
    end
    return "timeout", "status"
  elseif status == 502 then
    return "upstream_broke", "broke"
  end
  return "upstream_error"
end

--- Classifies a request that had a backend and tells passive health; in the log phase.
-- @param status as sent to the client
-- @return string, of the contract's `Outcome`
function _M.conclude(r, status, now)
  local outcome, sign
  if r.header then
    outcome, sign = of_answer(r, now)
  else
    outcome, sign = of_none(r, status, now)
  end
  if sign == "success" then
    note_success(r.place, now)
  elseif sign == "refusal" or sign == "error" then
    -- A request may be the cause, so that alone ejects nobody; but a backend that only errs must not look empty.
    passive_health.refusal(r.place, now)
    if r.probe then
      passive_health.abandon(r.place, now)
    end
  elseif sign and not r.noted then
    passive_health.failure(r.place, sign, now)
  elseif r.probe then
    passive_health.abandon(r.place, now)
  end
  if sign == "broke" or r.header and outcome == "upstream_error" and sign ~= "refusal" then
    quarantine.suspect(r)
  elseif sign == "connect" then
    quarantine.crashed(r.backend, state.current(now).settings.limits.quarantine_ms)
  end
  return outcome
end

return _M
