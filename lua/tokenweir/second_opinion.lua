--- Asks the small model for a second opinion of a request's output where there is time: of one that waits in the line,
-- and of the first of a session. The answer refines the prediction and the reservation; no request waits for it. Off
-- unless `predictor.small_model` is set.
local config = require "tokenweir.config"
local ffi = require "ffi"
local ledger = require "tokenweir.ledger"
local metrics = require "tokenweir.metrics"
local prediction = require "tokenweir.prediction"
local small_model = require "tokenweir.small_model"
local turns = require "tokenweir.core.body.turns"

local min = math.min
local text_of = ffi.string
local timer_at = ngx.timer.at

local USER, span = turns.USER, turns.span

--- Bytes that are sent of each end of the last message of the user.
local END = 1024
--- Questions of this worker that are open at once; more would only wait for each other.
local MOST_OPEN = 8

--- What a request has until the answer comes.
local ASKED = {}

local _M = {}

local open = 0

local function refine(premature, r, use, question)
  local correction, number
  if not premature then
    correction, number = small_model.ask(question)
  end
  open = open - 1
  if not correction then
    return metrics.add("small_model", 1, number or "failed")
  elseif not r.taken or r.use ~= use or r.ended then
    return metrics.add("small_model", 1, "late")
  end
  r.opinion = { number = number, median = r.log_median, correction = correction }
  local refined = small_model.helps() and prediction.refine(r, correction)
  if refined then
    ledger.refine(r)
  end
  metrics.add("small_model", 1, refined and "refined" or "kept")
end

-- Both ends of the last message of the user, as they stand in the body.
local function question_of(parsed)
  local p, of = parsed.p, parsed.tally.turns
  local first, last = span(of, USER, true, false)
  if first < 0 or last <= first then
    return nil
  end
  local tail_first, tail_last = span(of, USER, true, true)
  if tail_last == last and last - first <= 2 * END then
    return ("ask %d 0\n"):format(last - first) .. text_of(p + first, last - first)
  end
  local head, tail = min(last - first, END), min(tail_last - tail_first, END)
  return ("ask %d %d\n"):format(head + tail, head) .. text_of(p + first, head) .. text_of(p + tail_last - tail, tail)
end

--- Asks of a request whose body is still at hand, once.
function _M.ask(r, settings)
  if not settings.predictor.small_model or not config.current.small_model_socket or not r.log_median
    or r.opinion or open >= MOST_OPEN or not r.parsed.p then
    return
  end
  local question = question_of(r.parsed)
  if question and timer_at(0, refine, r, r.use, question) then
    open, r.opinion = open + 1, ASKED
  end
end

return _M
