--- The access phase: who asks, for which model, where it goes. It leaves a reserved backend in `ngx.ctx`.
local affinity = require "tokenweir.affinity"
local auth = require "tokenweir.auth"
local body = require "tokenweir.body"
local breaker = require "tokenweir.breaker"
local burst = require "tokenweir.core.body.burst"
local clock = require "tokenweir.clock"
local deadline = require "tokenweir.deadline"
local errors = require "tokenweir.errors"
local limits = require "tokenweir.limits"
local metrics = require "tokenweir.metrics"
local models = require "tokenweir.models"
local path = require "tokenweir.core.body.path"
local pick = require "tokenweir.pick"
local prediction = require "tokenweir.prediction"
local quarantine = require "tokenweir.quarantine"
local request_context = require "tokenweir.request_context"
local request_id = require "tokenweir.request_id"
local scoreboard = require "tokenweir.scoreboard"
local second_opinion = require "tokenweir.second_opinion"
local sessions = require "tokenweir.sessions"
local state = require "tokenweir.state"
local transfer = require "tokenweir.transfer"
local turned_away = require "tokenweir.turned_away"
local variables = require "tokenweir.variable"
local variant = require "tokenweir.variant"
local waiting = require "tokenweir.waiting"

local ngx = ngx
local variable, set_bytes = variables.get, variables.set_bytes
local get_method = ngx.req.get_method
local new_id = request_id.next
local now_ms = clock.ms
local ceil = math.ceil
local lower = string.lower
local tonumber = tonumber

local KINDS = {
  ["/v1/chat/completions"] = "chat",
  ["/v1/completions"] = "completions",
  ["/v1/responses"] = "responses",
  ["/v1/embeddings"] = "embeddings",
}

local _M = {}

-- What kind of request it is, by the path that the engine will see.
local function kind_by_path()
  local written = path.of(variable("request_uri"))
  local kind = KINDS[written]
  if kind then
    return kind
  end
  local ok, wrong = path.check(written)
  if not ok then
    return errors.send(400, "invalid_path", "This path cannot be passed on: " .. wrong .. ".")
  end
  -- `/v1/ch%61t/completions` is the same place to an engine.
  return KINDS[variable("uri")]
end

-- nginx would drop the header and ask the engine for a plain page: its answer could only mislead.
local function refuse_websocket()
  local upgrade = variable("http_upgrade")
  if upgrade and lower(upgrade) == "websocket" then
    return errors.send(501, "not_implemented",
      "WebSocket connections (as of /v1/realtime) are not passed on. Connect to the backend itself.")
  end
end

-- The kind of a request, and whether it is as most are: nginx.conf knows these, which saves a look at each header.
local function kind_of()
  local usual = variable("tw_usual_kind")
  if usual ~= "" then
    return usual, true
  end
  local kind = kind_by_path()
  if kind and get_method() == "POST" then
    return kind, false
  end
  refuse_websocket()
  return "other", false
end

-- A header of ours, which a usual request does not have.
local function header(name, usual)
  if usual then
    return nil
  end
  local value = variable(name)
  return value
end

-- The model that the request goes to: what it names, else the configured one, else the only one there is.
local function resolve(r, known, key)
  local asked = r.parsed.model or r.form and r.form.model
  local name = asked or r.pin and affinity.model_of(known, r, key, auth.allows) or models.default(known)
  if not name then
    return errors.send(400, "model_required",
      "The request names no model, and none is configured for it (paths, default_model). "
      .. models.listing(known, key), "model")
  end
  local pool = known.fleet.models[name]
  if not pool or not auth.allows(key, name, pool.name) then
    return models.refuse(known, key, name, pool)
  end
  r.pool, r.model = pool, pool.name
end

-- Burst mode: what it asks for beyond that mode's answers is cut, unless its key is spared.
local function shorten(r, known)
  local limit = known.burst_max_tokens
  if burst.applies(r.kind) and not (r.key and r.key.burst_exempt) and burst.degrades(r.parsed, limit) then
    r.burst = limit
    local asked = r.parsed.max_tokens
    if not asked or asked > limit then
      r.parsed.max_tokens = limit
    end
    metrics.add("degraded", 1, r.model, "burst")
  end
end

-- Chooses a backend, or waits for room. Nobody comes to wait for a backend that is not there.
local function choose(r, known, now)
  if waiting.somebody(r.pool, now) and pick.reachable(known, r, now) then
    return waiting.wait(r, known, now, "full")
  end
  local index, reason, retry_at = pick.pick_and_take(known, r, now, waiting.held(r.pool, now))
  if index then
    return known
  elseif reason == "full" then
    return waiting.wait(r, known, now, reason)
  end
  if r.pinned then
    return errors.send(503, "response_unavailable",
      "The backend that made the response which this request goes on from cannot be reached now, and the response is "
      .. "nowhere else. Try again later.", nil, retry_at and retry_at > now and (retry_at - now) / 1000 or 2)
  end
  return turned_away.unreachable(r, retry_at and retry_at > now and (retry_at - now) / 1000 or 2)
end

-- The usual location knows its upstream; what is not usual goes on in another.
local function go_apart(r, target, var)
  local apart = target.apart or target.closes or deadline.apart(r)
  var.tw_upstream = (target.tls and "https://" or "http://") .. (apart and "tokenweir_apart" or "tokenweir")
  var.tw_connection = apart and "close" or ""
  if target.tls then
    var.tw_sni = target.sni
  end
  var.tw_request = request_context.keep(r)
  return ngx.exec(target.tls and not target.verify and "@unverified" or "@apart")
end

--- What the proxy module reads. Values come from the fleet and our own files, which are checked for control characters.
local function set_variables(r, known)
  local target, var = r.target, ngx.var
  var.tw_host = target.authority
  if target.wants_key then
    var.tw_authorization = target.authorization or ""
  elseif auth.wanted(known.settings) then
    var.tw_authorization = ""
  end
  if target.tls or target.closes or deadline.apart(r) then
    return go_apart(r, target, var)
  end
end

--- Handles a request below /v1/.
function _M.run()
  local now = now_ms()
  local r = request_context.take(now)
  ngx.ctx = r
  set_bytes("tw_new_id", new_id(), request_id.SIZE)
  local kind, usual = kind_of()
  local known = state.current(now)
  local settings = known.settings
  if not settings or not known.fleet then
    return errors.starting()
  end
  local key = auth.check(settings)
  r.key = key or false
  r.priority = auth.priority(key, header("http_x_priority", usual))
  local most = deadline.of(settings, key)
  if most then
    r.deadline = now + most
  end
  r.kind = kind
  body.read(r)
  affinity.read(r, settings)
  resolve(r, known, key)
  scoreboard.arrive(r.pool.place)
  sessions.identify(r, settings, header("http_x_session_id", usual))
  variant.read(r, known.fleet, header("http_x_precision", usual))
  local control = state.control(known, r.pool)
  breaker.check(r, control, settings, now)
  quarantine.check(r, now)
  if control.burst then
    shorten(r, known)
  end
  prediction.fill(r, known)
  if key and key.limited then
    limits.admit(r, key, r.prompt + ceil(r.mean) * r.n)
  end
  -- Reading the body may have taken a while.
  now = now_ms()
  known = choose(r, state.current(now), now)
  r.wait_ms = now_ms() - now
  if settings.predictor.small_model and r.session and not sessions.known(r, settings, now) then
    second_opinion.ask(r, settings)
  end
  sessions.served(r, settings, now)
  if r.moved_from then
    transfer.bring(r, known)
  end
  if r.parsed.kind then
    body.rewrite(r, r.upstream, r.kind ~= "other")
  elseif r.form then
    body.rewrite_form(r, r.upstream)
  end
  request_context.forget_body(r)
  set_variables(r, known)
end

--- Goes on in the location of what is not usual.
function _M.resume()
  ngx.ctx = request_context.find(tonumber(variable("tw_request")))
end

return _M
