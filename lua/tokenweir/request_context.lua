--- The context of one request: a table from a pool, that of its request from the access phase to the log phase
-- (`current_context.lua`).
--
-- Members, by who writes them:
--   errors      answered (by us), code (of the error that the client was told)
--   models      asked (the model that is not there, as JSON)
--   access      arrived, kind, key (of the settings, or nil), priority, parsed, pool, model, deadline, limited,
--               precision (the variant asked for, or nil), burst (most output tokens of a degraded one, or nil)
--   body_rate   body_at (while its body is read), slow (it came too slowly)
--   sessions    session, session_set (the halves of its hash, false where nothing tells one)
--   prediction  prompt, mean, median, q90, sd, class, n, max_tokens, prompt_bytes, stream, tokens_per_event,
--               source (which predictor), vector and hashed (its features, if they are recorded), and what it learns by
--   affinity    home, stay, settled, away_ms, ring_at, verdict (why it went there), blocks (of its prompt),
--               reckoned (tokens that the backend has of it), cache_seed, others, pin (the place of the only backend
--               that has the response which it goes on from) and pinned (the same, while that is in the fleet)
--   pick        backend (id), target (`targets.lua`), upstream, alternates, policy, shadow, probe, draw, fallback
--               moved_from, moved_tokens (where its session was until now, and what is cached there)
--   transfer    brought (tokens of its prompt that were brought to the backend), kv_params (for the engine, JSON)
--   second_opinion opinion (the small model's; a table without members until it has answered)
--   waiting     waiter (while it waits, see `core/queue`), semaphore
--   ledger      see `core/backend/load.lua` and `ledger.lua`
--   balancer    tries, tried, tried_count, refused (429 or 503 of the last backend), noted (passive health has it),
--               cut (502 or 504: it broke off or was too late with a request that it had been sent)
--   deadline    watch (what the end of its answer is watched by)
--   filters     header (status of the upstream's answer), sse, usage, first_byte, last_byte, first_token, ended,
--               broken, late, silent, no_answer, unconnected (there was no connection left to send it by), error_page,
--               engine_error, response (the id of the one that streams, once it is known)
local fixed_table = require "tokenweir.core.fixed_table"
local prefix_blocks = require "tokenweir.core.body.prefix_blocks"
local request = require "tokenweir.core.body.request"
local sse = require "tokenweir.core.answer.sse"
local usage = require "tokenweir.core.answer.usage"

local clear, new_request = request.clear, request.new
local keep_blocks = prefix_blocks.keep
local new_plain, reset_plain = usage.new, usage.reset
local new_stream, reset_stream = sse.new, sse.reset
local collectgarbage = collectgarbage

local MOST_POOLED = 1024
--- All members that a context may have; LuaJIT takes the next power of two, and with more than 128 each of ten thousand
-- waiting requests would cost 3 KB more. They are all there from the start, and never nil: false where there is nothing
-- (`core/fixed_table.lua`).
local MEMBERS = {
  "taken", "use", "small", "few_blocks", "arrived", "kind", "key", "priority", "parsed", "pool", "model",
  "deadline", "limited", "limits", "precision", "burst", "body_at", "slow", "body_file", "form", "digest", "session",
  "session_set", "prompt", "mean", "median", "q90", "sd", "class", "n", "max_tokens", "prompt_bytes", "stream",
  "tokens_per_event", "threshold", "source", "vector", "hashed", "raw_prompt", "media", "key_id", "system_id",
  "session_id", "prompt_id", "stats", "prior", "fitted", "ordered", "bound", "learned", "log_median", "log_lower",
  "log_upper", "raw_mean", "model_mean", "key_factor", "median_shift", "q90_shift", "own_median", "own_q90",
  "opinion", "home", "stay", "settled", "away_ms", "ring_at", "verdict", "blocks", "reckoned", "cache_seed", "others",
  "pin", "pinned", "backend", "target", "upstream", "alternates", "policy", "shadow", "probe", "draw", "fallback",
  "moved_from", "moved_tokens", "brought", "kv_params", "waiter", "semaphore", "wait_ms", "place", "reserved",
  "reserved_at", "expected", "most", "remaining", "variance", "held", "bucket", "prefill", "flowing", "tokens",
  "unseen_at", "tries", "tried", "tried_count", "refused", "noted", "cut", "watch", "header", "sse", "usage",
  "first_byte", "last_byte", "first_token", "ended", "broken", "late", "silent", "no_answer", "unconnected",
  "error_page", "engine_error", "response", "answered", "code", "asked",
}
--- While so many of a worker wait, those that come get room for what one has that waits, and what it has not is nil: it
-- grows when it is served, and is not used again.
local MANY, MEMBERS_OF_MANY = 64, 64
--- The heap grows to so many per cent of what is alive before it is collected again: LuaJIT's own figure, and that
-- while many wait. What each left behind when it came would else add up to half of what it holds.
local PAUSE, PAUSE_OF_MANY = 200, 125

local _M = {}

local pool, pooled = {}, 0

-- Lists know how long they are: finding it out takes a search.
local function from(list, make)
  local last = list.count
  if last == 0 then
    return make()
  end
  local state = list[last]
  list[last], list.count = nil, last - 1
  return state
end

local function give_to(list, state)
  local count = list.count
  if state and count < MOST_POOLED then
    list[count + 1], list.count = state, count + 1
  end
end

-- What was read of bodies is kept in tables of several KB. Who waits puts it aside, and who has been sent on needs it
-- no more: others use them meanwhile, and one that was just used is still in the processor's cache.
local parsings = { count = 0 }
--- What these hold instead: no body. Never written.
local ASIDE, NONE = request.new(), request.new()
local aside = 0

-- One more waits, or, by -1, one less.
local function count_aside(more)
  local before = aside > MANY
  aside = aside + more
  local many = aside > MANY
  if many ~= before then
    collectgarbage("setpause", many and PAUSE_OF_MANY or PAUSE)
  end
end

local function new()
  local small = aside > MANY
  local r = small and fixed_table.room(MEMBERS_OF_MANY) or fixed_table.new(MEMBERS)
  r.tried_count, r.small, r.few_blocks = 0, small, not small and prefix_blocks.new_few()
  r.use, r.stream, r.n, r.prompt, r.tries = 0, false, 1, 0, 0
  return r
end

--- A clean context.
-- @param now ms
function _M.take(now)
  local r
  if pooled > 0 then
    r = pool[pooled]
    pool[pooled] = nil
    pooled = pooled - 1
  else
    r = new()
  end
  r.taken, r.arrived, r.use = true, now, r.use + 1
  r.parsed = from(parsings, new_request)
  return r
end

-- Readers of answers, which a request needs only once one has begun: those that wait hold none.
local streams, plains = { count = 0 }, { count = 0 }

--- Lets a context read a stream of events: `r.sse`.
function _M.read_stream(r)
  r.sse = from(streams, new_stream)
  reset_stream(r.sse)
end

--- Lets a context read a plain answer: `r.usage`.
function _M.read_plain(r)
  r.usage = from(plains, new_plain)
  reset_plain(r.usage)
end

--- Lends what was read of a body to others; `take_up` is to be called before it is looked at again.
function _M.put_aside(r)
  give_to(parsings, r.parsed)
  r.parsed = ASIDE
  count_aside(1)
end

--- Gives a context a table for what is read of its body, if it put the one it had aside.
-- @return boolean, whether it had
function _M.take_up(r)
  if r.parsed ~= ASIDE then
    return false
  end
  r.parsed = from(parsings, new_request)
  count_aside(-1)
  return true
end

--- Gives up what was read of a body, once the request is on its way; what caches know its prompt by stays.
function _M.forget_body(r)
  local parsed, blocks = r.parsed, r.blocks
  if parsed.kind then
    clear(parsed)
  end
  if blocks then
    r.blocks = keep_blocks(blocks, r.few_blocks)
    if r.blocks == blocks then
      return
    end
  end
  give_to(parsings, parsed)
  r.parsed = NONE
end

--- Gives a context back; it must not be used any more.
function _M.give(r)
  give_to(streams, r.sse)
  give_to(plains, r.usage)
  local parsed = r.parsed
  if parsed == ASIDE then
    count_aside(-1)
  elseif parsed ~= NONE then
    if parsed.kind then
      clear(parsed)
    end
    give_to(parsings, parsed)
  end
  r.parsed = false
  if pooled >= MOST_POOLED or r.small then
    r.taken = false
    return
  end
  r.taken, r.arrived, r.answered, r.error_page = false, false, false, false
  r.kind, r.key, r.priority, r.pool = false, false, false, false
  r.model, r.deadline, r.limited, r.waiter = false, false, false, false
  r.stream, r.n, r.prompt, r.prompt_bytes, r.max_tokens = false, 1, 0, 0, false
  r.mean, r.median, r.q90, r.sd, r.class, r.source = false, false, false, false, false, false
  r.raw_prompt, r.fitted, r.stats, r.prior = false, false, false, false
  r.log_median, r.vector, r.hashed = false, false, false
  r.learned, r.opinion = false, false
  r.backend, r.place, r.target, r.upstream = false, false, false, false
  r.alternates, r.policy, r.shadow = false, false, false
  r.wait_ms, r.probe, r.reserved, r.tokens_per_event = false, false, false, false
  r.precision, r.burst, r.session, r.session_set = false, false, false, false
  r.draw, r.fallback, r.engine_error = false, false, false
  r.home, r.stay, r.settled, r.verdict = false, false, false, false
  r.blocks, r.reckoned, r.pin, r.pinned = false, false, false, false
  r.moved_from, r.moved_tokens, r.brought, r.kv_params = false, false, false, false
  r.tries, r.tried_count, r.refused, r.cut = 0, 0, false, false
  r.header, r.sse, r.usage, r.first_byte, r.last_byte, r.first_token = false, false, false, false, false, false
  r.form, r.response = false, false
  r.ended, r.broken, r.late, r.silent, r.no_answer, r.unconnected = false, false, false, false, false, false
  r.noted, r.digest, r.slow, r.code, r.asked = false, false, false, false, false
  pooled = pooled + 1
  pool[pooled] = r
end

return _M
