--- The header filter: says where a request went and why, and turns nginx's own error pages into OpenAI's shape.
local clock = require "tokenweir.clock"
local deadline = require "tokenweir.deadline"
local degraded_as = require("tokenweir.core.degraded").as
local errors = require "tokenweir.errors"
local ledger = require "tokenweir.ledger"
local limits = require "tokenweir.limits"
local request_context = require "tokenweir.request_context"
local state = require "tokenweir.state"
local upstream_log = require "tokenweir.upstream_log"
local variables = require "tokenweir.variable"

local ngx = ngx
local current = require("tokenweir.current_context").get
local has_answered = upstream_log.answered
local note_prefilled = ledger.prefilled
local put_limits = limits.headers
local read_plain, read_stream = request_context.read_plain, request_context.read_stream
local watch = deadline.watch
local now_ms = clock.ms
local settings = state.settings
local ceil, floor, min = math.ceil, math.floor, math.min
local find, lower = string.find, string.lower
local set, set_whole, status_of = variables.set, variables.set_whole, variables.status

local EVENTS = "text/event-stream"
--- No figure that is told is more.
local MOST = 2 ^ 31 - 1

local _M = {}

-- What a page of nginx's own means for a request that had a backend.
local function explain(r, status)
  if r.refused == 429 then
    return 429, "overloaded", "Every backend that this request was offered to is busy. Try again later.", 1
  elseif r.refused then
    return 503, "no_capacity", "Every backend that this request was offered to refused it. Try again later.", 2
  end
  if r.no_answer then
    return 502, "upstream_broke", "What the backend sent is no answer."
  end
  if status == 500 and r.tries > 0 and upstream_log.sent() == 0 then
    r.unconnected = true
    return 503, "no_capacity", "The gateway has no connection left (limits.connections). Try again later.", 2
  end
  status = r.cut or status
  if (status == 502 or status == 504) and r.backend and not r.cut and upstream_log.sent() == 0 then
    return 503, "no_capacity", "No backend could be reached. Try again later.", 2
  elseif status == 504 and deadline.reached(r, now_ms()) then
    return 504, "deadline_exceeded", deadline.message(r)
  end
  return status, errors.of_nginx(status)
end

local function own_page(r, status)
  local code, message, retry_after
  status, code, message, retry_after = explain(r, status)
  local body = errors.body(status, code, message)
  ngx.status = status
  local header = ngx.header
  header["Content-Type"] = "application/json"
  header["Content-Length"] = #body
  if retry_after then
    header["Retry-After"] = errors.retry_after(retry_after)
  end
  r.error_page, r.code = body, code
end

local function is_stream(content_type)
  return find(content_type, EVENTS, 1, true) or find(lower(content_type), EVENTS, 1, true)
end

-- Only answers of a kind that is understood are looked into; where a key's use is limited, what others tell of it too
-- (`/v1/messages`, `/v1/rerank`).
local function listen(r)
  if r.kind == "other" and not r.limited then
    return
  end
  if r.stream and is_stream(ngx.header["Content-Type"] or "") then
    read_stream(r)
  else
    read_plain(r)
  end
  if r.kind == "responses" then
    (r.sse or r.usage).wants_id = true
  end
end

-- nginx.conf makes headers of these variables, unless they are empty.
local function tell(r)
  local shown = settings().headers
  if shown.backend then
    set("tw_backend", r.backend)
  end
  local degraded = shown.degraded and degraded_as(r)
  if degraded then
    ngx.header["X-Tokenweir-Degraded"] = degraded
  end
  if shown.predicted_tokens and r.mean then
    set_whole("tw_predicted", min(ceil(r.mean * r.n), MOST))
  end
  if shown.wait_ms then
    set_whole("tw_wait", min(floor(r.wait_ms), MOST))
  end
end

--- Handles the head of any answer.
function _M.run()
  local r, status = current(), status_of()
  if r.answered then
    if r.limited then
      put_limits(r)
    end
    return
  end
  if status >= 400 and (not r.backend or r.no_answer or not has_answered()) then
    own_page(r, status)
  elseif r.backend and (status < 200 or status > 599) then
    -- Bytes without a head (nginx calls that HTTP/0.9), a status that there is not (777), or an interim answer: nginx
    -- would take what follows for its body. It closes the connection and comes here again with its page for a 502.
    r.no_answer = true
    return ngx.exit(502)
  elseif r.backend then
    r.header = status
    -- nginx calls no body filter for an answer that has none.
    r.ended = status == 204 or status == 304 or r.kind == "other" and ngx.var.request_method == "HEAD"
    if r.deadline then
      watch(r)
    end
    if status == 200 then
      listen(r)
    end
    if not r.sse then
      -- No event will tell that the prompt has been processed; an answer that begins does.
      note_prefilled(r)
    end
  end
  if r.backend then
    tell(r)
  end
  if r.limited then
    put_limits(r)
  end
end

return _M
