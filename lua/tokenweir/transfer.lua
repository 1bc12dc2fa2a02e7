--- Moves the KV cache of a session that has just moved, where `core/sessions/transfer.lua` says that it pays: asks the
-- sidecar of this host, whose adapter knows how (`sidecar/transfer/`), and waits for it no longer than computing the
-- prompt anew would take. Whatever becomes of it, the request then goes to its backend. Only a request whose session
-- moved comes here, and with the adapter `none` it does not wait.
local body_bytes = require "tokenweir.body_bytes"
local clock = require "tokenweir.clock"
local config = require "tokenweir.config"
local core = require "tokenweir.core.sessions.transfer"
local ffi = require "ffi"
local ledger = require "tokenweir.ledger"
local metrics = require "tokenweir.metrics"
local region = require "tokenweir.region"

local ngx = ngx
local tcp = ngx.socket.tcp
local now_ms = clock.ms
local format, match = string.format, string.match
local floor, max, min = math.floor, math.max, math.min
local tonumber = tonumber

--- Kinds of which an engine can be told what is cached.
local KINDS = { chat = true, completions = true }
local PARAMETER = "kv_transfer_params"
--- What is left of a request's deadline at least.
local SPARE_MS = 10
local IDLE_MS, POOL = 60000, 32
local MOST_PARAMETERS = 1024 * 1024

local _M = {}

local said              -- of an outage
local single = {}       -- a list of candidates

local function has_parameters(parsed)
  for k = 1, parsed.members do
    if parsed.names[k] == PARAMETER then
      return true
    end
  end
  return false
end

--- Whether the request is one whose cache can be told by its body: in memory, and without such parameters of its own.
function _M.can_ask(r)
  return config.current.transfer_socket and KINDS[r.kind] and r.parsed.kind and not r.parsed.file
    and not has_parameters(r.parsed)
end

-- ms of prefill that a backend has before it.
local function ahead_of(known, i, now)
  single[1] = i
  return ledger.view(known, single, 1, now).load[i].prefill * known.fleet.prefill[i]
end

local function plan_of(r, known, how, now)
  local fleet = known.fleet
  local from = fleet.at_place[r.moved_from]
  if from == 0 or not _M.can_ask(r) then
    return nil, "impossible"
  end
  local plan, why = core.plan(region.cache(), fleet, r, how, ahead_of(known, from, now), now)
  if not plan then
    return nil, why
  end
  if r.deadline then
    plan.most_ms = min(plan.most_ms, r.deadline - now - SPARE_MS)
  end
  if plan.most_ms < 1 then
    return nil, "not_worth"
  end
  return plan, fleet.id[from]
end

local function question(r, from, left)
  local upstream, p, size = r.upstream, body_bytes.get()
  return format("move %s %s %s %d %d %d %d\n", from, r.backend, r.kind, floor(r.moved_tokens), floor(left), #upstream,
    size) .. upstream .. ffi.string(p, size)
end

-- Sends the question and reads the answer.
-- @param left function() -> ms for the next step
-- @return table; or nil, why, and whether to try it on another connection
local function converse(socket, r, from, left)
  socket:settimeouts(left(), left(), left())
  local ok, err = socket:connect("unix:" .. config.current.transfer_socket, { pool_size = POOL })
  if not ok then
    return nil, err
  end
  ok, err = socket:send(question(r, from, left()))
  if not ok then
    return nil, err, err == "closed" and socket:getreusedtimes() > 0
  end
  socket:settimeout(left())
  local line
  line, err = socket:receive("*l")
  if not line then
    -- A sidecar that was started anew has closed the connections that were kept.
    return nil, err, err == "closed" and socket:getreusedtimes() > 0
  end
  if line == "late" then
    return nil, "timeout"
  end
  local tokens, bytes, size = match(line, "^done (%d+) (%d+) (%d+)$")
  size = tonumber(size)
  if not size or size > MOST_PARAMETERS then
    return nil, match(line, "^failed (.*)$") and "refused" or "not understood"
  end
  local parameters
  if size > 0 then
    socket:settimeout(left())
    parameters, err = socket:receive(size)
    if not parameters then
      return nil, err
    end
  end
  socket:setkeepalive(IDLE_MS, POOL)
  return { tokens = tonumber(tokens), bytes = tonumber(bytes), parameters = parameters }
end

-- @return table, or nil and "late" or "failed"
local function ask(r, from, most)
  local began = now_ms()
  local function left()
    return max(1, floor(most - (now_ms() - began)))
  end
  local answer, err
  repeat
    local socket = tcp()
    local again
    answer, err, again = converse(socket, r, from, left)
    if answer then
      said = nil
      return answer
    end
    -- This tells the sidecar that nobody waits any more.
    socket:close()
  until not again
  if err == "timeout" then
    return nil, "late"
  end
  if err ~= said then
    said = err
    ngx.log(ngx.NOTICE, "tokenweir: caches are not moved, their prompts are computed anew: ",
      err == "refused" and "the sidecar's log says why" or err)
  end
  return nil, "failed"
end

local function take(r, answer, kv_bytes)
  local tokens = answer.tokens
  r.brought = max(0, min(tokens, r.prompt) - r.reckoned)
  r.kv_params = answer.parameters or false
  ledger.brought(r, min(r.prompt, max(tokens, r.reckoned)))
  metrics.add("kv_transfer_tokens", tokens, r.model)
  metrics.add("kv_transfer_bytes", answer.bytes > 0 and answer.bytes or tokens * kv_bytes, r.model)
end

--- Brings the cache of a request's session to the backend that it was given, or does not; then the request goes on.
-- @param known `state.current()`
function _M.bring(r, known)
  local how = known.settings.sessions.transfer
  if how.adapter == "none" then
    return
  end
  local began = now_ms()
  local plan, from = plan_of(r, known, how, began)
  if not plan then
    return metrics.add("kv_transfers", 1, r.model, from)
  end
  local answer, outcome = ask(r, from, plan.most_ms)
  local now, memory = now_ms(), region.cache()
  if answer then
    outcome = "done"
    core.done(memory, plan, now - began, now)
    take(r, answer, plan.kv_bytes)
  elseif outcome == "late" then
    core.late(memory, plan, now - began, now)
  else
    core.failed(memory, plan, now)
  end
  metrics.add("kv_transfers", 1, r.model, outcome)
  metrics.observe("kv_transfer", (now - began) / 1000, r.model, outcome)
end

return _M
