--- Passive health of one backend, from what requests on it meet. One struct per backend, shared by all workers.
--
-- closed -> (failures in a row, a high share of failures, or a hang) -> ejected for 5 s, doubling to 60 s
-- ejected -> (time is up) -> half-open: one probe at a time, each under a lease that expires
-- probe succeeds -> closed; fails -> ejected for longer; neither -> the lease runs out and the next probe may go.
--
-- Workers write without a lock. Every field is one aligned double, so none is torn; a lost update costs one count.
-- Times are ms of the monotonic clock; 0 means never.
local ffi = require "ffi"
local defaults = require "tokenweir.core.documents.defaults"

local max, min = math.max, math.min

ffi.cdef [[
typedef struct {
  double failures;       /* in a row */
  double ejected_until;  /* 0: not ejected */
  double ejections;      /* in a row: the back-off's exponent */
  double probe_until;    /* a probe is out until then at most */
  double last_byte;      /* when any byte of an answer came */
  double gap;            /* moving mean of the time between two bytes of one stream */
  double hung;           /* 1: ejected because it stood still */
  double last_success;
  double error_rate;     /* moving share of failures */
  double outcomes;       /* counted into error_rate since it was last closed */
  double last_outcome;   /* when */
  double closed_at;      /* when it last came back */
  double cause;          /* of the ejection, see CAUSES */
  double refusal_rate;   /* moving share of answers by which it refused the request itself, see refuses() */
  double last_refusal;   /* when it was counted */
  double silent_since;   /* when it was first seen to have work, 0: it has none; see liveness.lua */
} tw_health;
]]

--- States, as `state` tells them.
local CLOSED, EJECTED, HALF_OPEN, PROBING = 0, 1, 2, 3

--- Why a request failed.
local CAUSES = { connect = 1, status = 2, broke = 3, hang = 4, memory = 5, doubt = 6 }

local DOUBT = CAUSES.doubt

local DEFAULTS = defaults.of("settings", "health")

local ERROR_ALPHA = 0.1    -- about the last ten outcomes
local MIN_OUTCOMES = 10    -- before the share of failures means anything
local ERROR_HALF_LIFE = 10000
local FORGOTTEN_RATE = 0.02
local GAP_ALPHA = 0.05
local FORGIVEN_MS = 60000  -- closed for so long: the back-off starts anew

local _M = {
  CLOSED = CLOSED, EJECTED = EJECTED, HALF_OPEN = HALF_OPEN, PROBING = PROBING,
  CAUSES = CAUSES, DEFAULTS = DEFAULTS, SIZE = ffi.sizeof("tw_health"),
}

--- A new zeroed array, valid at 0 .. count. It must be kept: an element of it does not keep it alive.
function _M.new(count)
  return ffi.new("tw_health[?]", count + 1)
end

--- Zeroes a backend's health.
function _M.clear(h)
  ffi.fill(h, _M.SIZE)
end

--- Whether an answer's status says that the backend is ill, as one beyond 599 does, which there is not. Client errors
-- and 429 never do; nor do 501 and 505, which say that it cannot do what was asked.
function _M.counts(status)
  return status >= 500 and status ~= 501 and status ~= 505
end

-- What a client may bring about at any backend: its body, its size, its pace.
local CLIENTS = { [400] = true, [408] = true, [409] = true, [413] = true, [415] = true, [422] = true, [429] = true }

--- Whether an answer's status may be this backend's own, though it says nothing of its health: it does not know the
-- key, the model or the page. Such answers come fast, and must not make it look empty.
function _M.refuses(status)
  return status >= 400 and status < 500 and not CLIENTS[status] or status == 501 or status == 505
end

--- @return number CLOSED, EJECTED, HALF_OPEN (a probe may go) or PROBING (one is out)
local function state_of(h, now)
  if h.ejected_until == 0 then
    return CLOSED
  end
  if now < h.ejected_until then
    return EJECTED
  end
  if now < h.probe_until then
    return PROBING
  end
  return HALF_OPEN
end
_M.state = state_of

--- Whether a request may go there now.
function _M.usable(h, now)
  return h.ejected_until == 0 or (now >= h.ejected_until and now >= h.probe_until)
end

--- To be called when a request is sent: in half-open it is the probe and takes the lease.
-- @return boolean whether the request is a probe
function _M.probe(h, now, settings)
  if state_of(h, now) ~= HALF_OPEN then
    return false
  end
  h.probe_until = now + (settings or DEFAULTS).probe_ms
  return true
end

--- It was said that this backend is out, which may be out of date, and nothing has shown since that it is not: it is
-- half-open, until a probe tells.
-- @param since ms, when it was said
function _M.doubt(h, since, now)
  if h.ejected_until == 0 and h.closed_at <= since and h.last_byte <= since then
    h.ejected_until, h.probe_until, h.cause = now, 0, CAUSES.doubt
  end
end

--- A probe ended and tells nothing: its client left, or the answer was one that says nothing of health. The next
-- may go.
function _M.abandon(h, now)
  if state_of(h, now) == PROBING then
    h.probe_until = 0
  end
end

-- A moving share fades with time: a backend that gets no requests must not look bad for ever.
local function faded(rate, at, now)
  local age = now - at
  if rate == 0 or age <= 0 then
    return rate
  end
  return rate * 0.5 ^ (age / ERROR_HALF_LIFE)
end

--- The share of failures.
-- @return number 0 .. 1
function _M.error_rate(h, now)
  return faded(h.error_rate, h.last_outcome, now)
end
local error_rate = _M.error_rate

--- The share of requests that it did not serve, by a failure or by refusing them.
-- @return number 0 .. 1; 0 for what is left of long ago, so that a backend which is well again is an equal once more
function _M.unserved_rate(h, now)
  local rate = error_rate(h, now)
  if h.refusal_rate ~= 0 then
    rate = 1 - (1 - rate) * (1 - faded(h.refusal_rate, h.last_refusal, now))
  end
  return rate >= FORGOTTEN_RATE and rate or 0
end

local function count_outcome(h, now, failed)
  -- At first the plain share, with two successes taken for granted: one early failure must not look like an outage.
  local alpha = max(ERROR_ALPHA, 1 / (h.outcomes + 3))
  h.error_rate = (1 - alpha) * error_rate(h, now) + (failed and alpha or 0)
  h.outcomes = h.outcomes + 1
  h.last_outcome = now
end

local function eject(h, now, cause, settings)
  if h.ejected_until == 0 and now - h.closed_at > FORGIVEN_MS then
    h.ejections = 0
  end
  h.ejections = h.ejections + 1
  local wait = settings.eject_ms * 2 ^ min(h.ejections - 1, 32)
  h.ejected_until = now + min(wait, max(settings.eject_max_ms, settings.eject_ms))
  h.probe_until = 0
  h.cause = cause
  h.hung = cause == CAUSES.hang and 1 or 0
end

local function close(h, now)
  h.ejected_until, h.probe_until, h.failures, h.hung, h.cause = 0, 0, 0, 0, 0
  h.outcomes, h.closed_at = 0, now
end

local function count_refusal(h, now, refused)
  if refused or h.refusal_rate ~= 0 then
    h.refusal_rate = (1 - ERROR_ALPHA) * faded(h.refusal_rate, h.last_refusal, now) + (refused and ERROR_ALPHA or 0)
    h.last_refusal = now
  end
end

--- A request was refused by the backend itself (`refuses`): neither a success nor a failure.
function _M.refusal(h, now)
  count_refusal(h, now, true)
end

--- A request was answered. One that was sent before an ejection does not end it; a hung backend's does.
-- @return boolean whether the backend came back
function _M.success(h, now)
  count_outcome(h, now, false)
  count_refusal(h, now, false)
  h.last_success, h.last_byte, h.failures = now, now, 0
  local state = state_of(h, now)
  if state == CLOSED or (state == EJECTED and h.hung == 0) then
    return false
  end
  close(h, now)
  return true
end

--- A request failed: no connection, a status that counts, or an answer that broke off.
-- @param cause one of CAUSES
-- @return boolean whether the backend was ejected by this
function _M.failure(h, now, cause, settings)
  settings = settings or DEFAULTS
  count_outcome(h, now, true)
  h.failures = h.failures + 1
  local state = state_of(h, now)
  if state == EJECTED then
    return false
  end
  local bad = state ~= CLOSED or h.failures >= settings.failures
    or (h.outcomes >= MIN_OUTCOMES and h.error_rate >= settings.error_rate)
  if bad then
    eject(h, now, cause, settings)
  end
  return bad
end

--- A byte of an answer came.
-- @param since ms since the stream's previous byte; nil for its first
-- @return boolean whether a backend came back by it that had hung, or was in doubt
function _M.byte(h, now, since)
  h.last_byte = now
  if since and since >= 0 then
    h.gap = h.gap == 0 and since or h.gap + GAP_ALPHA * (since - h.gap)
  end
  if h.hung ~= 0 or h.cause == DOUBT then
    close(h, now)
    return true
  end
  return false
end

--- Whether the engine hangs: it stands still though it has work.
-- Silence alone is no hang: a long prefill is silent, and so is a request that does not stream. The engine's own
-- counters must stand still too; where they are not known, a second stream must be silent or a look have failed, since
-- one client that stops reading silences its stream.
-- @param flowing streams of it of which a byte has come already (all workers)
-- @param progress_age ms since its counters last moved while it had work; nil or < 0: not known
-- @param scrape_failures failed scrapes in a row
-- @param prefill_ms time that the prompts which it is processing need
function _M.stalled(h, flowing, now, progress_age, scrape_failures, prefill_ms, settings)
  settings = settings or DEFAULTS
  local limit = max(settings.hang_ms, settings.hang_gaps * h.gap)
  if prefill_ms and prefill_ms > 0 then
    limit = limit + 2 * prefill_ms
  end
  -- The snapshot lags behind by a scrape and a poll, so the counters are given half of the time.
  if progress_age and progress_age >= 0 and progress_age < limit / 2 then
    return false
  end
  if h.last_byte ~= 0 and now - h.last_byte < limit then
    return false
  end
  local counted, failures = progress_age ~= nil and progress_age >= 0, scrape_failures or 0
  if flowing > 0 then
    return h.last_byte ~= 0 and (counted or flowing >= 2 or failures >= 1)
  end
  return failures >= 2 and counted and progress_age >= limit
end

--- Ejects a backend whose engine says that it is out of memory: at once, as nothing that follows will do better. Does
-- nothing while it is ejected.
-- @return boolean whether it was ejected by this
function _M.exhausted(h, now, settings)
  if state_of(h, now) == EJECTED then
    return false
  end
  eject(h, now, CAUSES.memory, settings or DEFAULTS)
  return true
end

--- Ejects a backend that hangs. Does nothing while it is ejected.
-- @return boolean whether it was ejected by this
function _M.hang(h, now, settings)
  if state_of(h, now) == EJECTED then
    return false
  end
  eject(h, now, CAUSES.hang, settings or DEFAULTS)
  return true
end

return _M
