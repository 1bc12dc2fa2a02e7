--- Prompts that were in flight when an engine crashed, twice: refused for a while, since the third would crash too.
--
-- Only hashes of prompts are kept, for each model apart. A broken answer or an error alone is no crash (a stream may be
-- cut for other reasons): it is noted, and counts when the same backend refuses connections within the next moments,
-- be it a request that meets that or the sidecar (`follow`).
local clock = require "tokenweir.clock"
local errors = require "tokenweir.errors"
local metrics = require "tokenweir.metrics"
local prompt_digest = require "tokenweir.core.body.prompt_digest"
local request = require "tokenweir.core.body.request"

local dict = ngx.shared.tokenweir_quarantine
local ngx = ngx
local now_ms = clock.ms
local ceil = math.ceil

--- A crash shows itself within this time: the engine's port is closed at once, and requests or scrapes meet that.
local CONFIRM_S = 15
local CRASHES = 2
--- A first crash is remembered for so long, at least.
local MEMORY_S = 3600
local MOST_SUSPECTS = 1024
--- What breaks off on one backend within this time broke off at one crash. A prompt that many clients send at once
-- must not be counted once for each of them.
local ONE_CRASH_MS = 1000
--- How often a worker looks whether anything is in quarantine at all.
local LOOK_MS = 200

local _M = {}

local anything, looked_at = false, 0
local scratch = request.new()

local function digest_of(r)
  if r.digest then
    return r.digest
  end
  local body = ngx.req.get_body_data()
  if body and request.parse(r.kind, body, scratch) then
    r.digest = prompt_digest.digest(scratch) or false
  end
  request.clear(scratch)
  return r.digest
end

local function name_of(r, digest)
  return digest .. " " .. r.model
end

--- Refuses a request whose prompt is in quarantine.
function _M.check(r, now)
  if now - looked_at > LOOK_MS then
    looked_at, anything = now, dict:get("anything")
  end
  if not anything or not r.parsed.kind then
    return
  end
  local digest = prompt_digest.digest(r.parsed)
  if not digest then
    return
  end
  r.digest = digest
  local until_ms = dict:get("out:" .. name_of(r, digest))
  if until_ms and until_ms > now then
    metrics.add("quarantined", 1)
    return errors.send(422, "prompt_quarantined",
      "This prompt was being processed at two crashes of backends, so it is not sent to another one for now.",
      nil, (until_ms - now) / 1000)
  end
end

--- An answer of this backend broke off, or was an error of its own: the prompt is under suspicion until it is clear
-- whether the engine crashed.
function _M.suspect(r)
  local digest = digest_of(r)
  if not digest then
    return
  end
  local list = "broke:" .. r.backend
  local length = dict:llen(list)
  if length and length < MOST_SUSPECTS then
    dict:rpush(list, now_ms() .. " " .. name_of(r, digest))
  end
  if (dict:get("down:" .. r.backend) or 0) > now_ms() - CONFIRM_S * 1000 then
    _M.crashed(r.backend)
  end
end

local function count(name, backend, broke_at, quarantine_ms)
  local last = "last:" .. backend .. " " .. name
  -- Of several workers that are at it, one is the first.
  if not dict:add(last, broke_at, CONFIRM_S) then
    if broke_at - (dict:get(last) or -ONE_CRASH_MS) < ONE_CRASH_MS then
      return
    end
    dict:set(last, broke_at, CONFIRM_S)
  end
  local crashes = dict:incr("crashes:" .. name, 1, 0, MEMORY_S)
  if crashes and crashes >= CRASHES and quarantine_ms > 0 then
    local seconds = ceil(quarantine_ms / 1000)
    dict:set("out:" .. name, now_ms() + quarantine_ms, seconds)
    dict:set("anything", true, seconds)
    dict:delete("crashes:" .. name)
    looked_at = 0
  end
end

--- This backend refuses connections: what broke off there a moment ago was a crash.
-- @param quarantine_ms from the settings; nil: as at the last call
function _M.crashed(backend, quarantine_ms)
  if quarantine_ms then
    dict:set("quarantine_ms", quarantine_ms)
  end
  quarantine_ms = quarantine_ms or dict:get("quarantine_ms") or 0
  local now = now_ms()
  dict:set("down:" .. backend, now, CONFIRM_S)
  local list = "broke:" .. backend
  local entry = dict:lpop(list)
  while entry do
    local at, name = entry:match("^(%S+) (.+)$")
    at = tonumber(at)
    if name and now - at < CONFIRM_S * 1000 then
      count(name, backend, at, quarantine_ms)
    end
    entry = dict:lpop(list)
  end
end

--- Takes note of the backends that the sidecar cannot connect to any more; whenever a snapshot was applied. Where it
-- takes a backend out within a second, no request meets the closed port.
function _M.follow(fleet, settings)
  for i = 1, fleet.size do
    if fleet.refused[i] or fleet.state[i] == "down" and fleet.scrape_failures[i] > 0 and not fleet.late[i] then
      _M.crashed(fleet.id[i], settings and settings.limits.quarantine_ms)
    end
  end
end

return _M
