--- The access phase: who asks, for which model, where it goes. It leaves a reserved backend in the request's context.
local affinity = require "tokenweir.affinity"
local auth = require "tokenweir.auth"
local body = require "tokenweir.body"
local breaker = require "tokenweir.breaker"
local burst = require "tokenweir.core.body.burst"
local clock = require "tokenweir.clock"
local current_context = require "tokenweir.current_context"
local deadline = require "tokenweir.deadline"
local errors = require "tokenweir.errors"
local fresh = require "tokenweir.core.fresh"
local limits = require "tokenweir.limits"
local metrics = require "tokenweir.metrics"
local models = require "tokenweir.models"
local pick = require "tokenweir.pick"
local prediction = require "tokenweir.prediction"
local quarantine = require "tokenweir.quarantine"
local request_context = require "tokenweir.request_context"
local request_id = require "tokenweir.request_id"
local request_kind = require "tokenweir.request_kind"
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
local admit = limits.admit
local allows, are_keys_wanted, check_key, priority_of = auth.allows, auth.wanted, auth.check, auth.priority
local arrive = scoreboard.arrive
local check_breaker = breaker.check
local check_quarantine = quarantine.check
local control_of, current = state.control, state.current
local deadline_of, is_apart = deadline.of, deadline.apart
local does_somebody_wait, held_for_others = waiting.somebody, waiting.held
local forget_body, take_context = request_context.forget_body, request_context.take
local set_context = current_context.set
local identify, note_session = sessions.identify, sessions.served
local pick_and_take = pick.pick_and_take
local predict = prediction.fill
local read_affinity = affinity.read
local read_body, rewrite_body = body.read, body.rewrite
local read_variant = variant.read
local variable, set, set_bytes = variables.get, variables.set, variables.set_bytes
local find_kind, is_usual = request_kind.find, request_kind.is_usual
local join = fresh.load "tokenweir.core.trace_join"
local ID_SIZE, new_id = request_id.SIZE, request_id.next
local now_ms = clock.ms
local ceil = math.ceil

local _M = {}

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
  local name = asked or r.pin and affinity.model_of(known, r, key, allows) or models.default(known)
  if not name then
    return errors.send(400, "model_required",
      "The request names no model, and none is configured for it (paths, default_model). "
      .. models.listing(known, key), "model")
  end
  local pool = known.fleet.models[name]
  if not pool or not allows(key, name, pool.name) then
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
  if does_somebody_wait(r.pool, now) and pick.reachable(known, r, now) then
    return waiting.wait(r, known, now, "full")
  end
  local index, reason, retry_at = pick_and_take(known, r, now, held_for_others(r.pool, now))
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
  local apart = target.apart or target.closes or is_apart(r)
  var.tw_upstream = (target.tls and "https://" or "http://") .. (apart and "tokenweir_apart" or "tokenweir")
  var.tw_connection = apart and "close" or ""
  if target.tls then
    var.tw_sni = target.sni
  end
  return ngx.exec(target.tls and not target.verify and "@unverified" or "@apart")
end

--- What the proxy module reads. Values come from the fleet and our own files, which are checked for control characters.
local function set_variables(r, known)
  local target = r.target
  set("tw_host", target.authority)
  if target.wants_key then
    set("tw_authorization", target.authorization or "")
  elseif are_keys_wanted(known.settings) then
    set("tw_authorization", "")
  end
  if target.tls or target.closes or is_apart(r) then
    return go_apart(r, target, ngx.var)
  end
end

--- Handles a request below /v1/.
-- @param expected the kind of most requests to this location, or nil
function _M.run(expected)
  local now = now_ms()
  local r = take_context(now)
  set_context(r)
  local usual = expected and is_usual(expected)
  -- A client may have sent an id of its own, see nginx.conf.
  set_bytes(usual and "tw_id" or "tw_new_id", new_id(), ID_SIZE)
  local kind = usual and expected or find_kind()
  local known = current(now)
  local settings = known.settings
  if not settings or not known.fleet then
    return errors.starting()
  end
  local key = check_key(settings)
  r.key = key or false
  r.priority = priority_of(key, header("http_x_priority", usual))
  local most = deadline_of(settings, key)
  if most then
    r.deadline = now + most
  end
  r.kind = kind
  read_body(r)
  read_affinity(r, settings)
  resolve(r, known, key)
  arrive(r.pool.place)
  identify(r, settings, header("http_x_session_id", usual))
  read_variant(r, known.fleet, header("http_x_precision", usual))
  local control = control_of(known, r.pool)
  check_breaker(r, control, settings, now)
  check_quarantine(r, now)
  if control.burst then
    shorten(r, known)
  end
  predict(r, known)
  if key and key.limited then
    admit(r, key, r.prompt + ceil(r.mean) * r.n)
  end
  -- Reading the body may have taken a while.
  now = now_ms()
  known = choose(r, current(now), now)
  join()
  r.wait_ms = now_ms() - now
  if settings.predictor.small_model and r.session and not sessions.known(r, settings, now) then
    second_opinion.ask(r, settings)
  end
  note_session(r, settings, now)
  if r.moved_from then
    transfer.bring(r, known)
  end
  if r.parsed.kind then
    rewrite_body(r, r.upstream, r.kind ~= "other")
  elseif r.form then
    body.rewrite_form(r, r.upstream)
  end
  forget_body(r)
  set_variables(r, known)
end

return _M
