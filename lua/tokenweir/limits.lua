--- Requests and tokens per minute of an API key: own counts in a shared dict, other gateways' from their leases.
--
-- Tokens are counted as predicted when the request is let in, and corrected when it has ended. Windows are cut by wall
-- time, so that all gateways cut them alike.
local errors = require "tokenweir.errors"
local lease = require "tokenweir.lease"
local peers = require "tokenweir.peers"
local ratelimit = require "tokenweir.core.ratelimit"

local dict = ngx.shared.tokenweir_limits
local ngx = ngx
local check, window = ratelimit.check, ratelimit.window
local ceil, max = math.ceil, math.max
local format = string.format

local KEPT_S = 180

local _M = {}

local function name_of(kind, key, minute)
  return kind .. key.id .. ":" .. minute
end

local function counts(key, minute)
  local requests, tokens = peers.key_use(key.id, minute)
  return requests + (dict:get(name_of("r:", key, minute)) or 0), tokens + (dict:get(name_of("t:", key, minute)) or 0)
end

local function refuse(what, limit, retry_ms)
  if not retry_ms then
    return errors.send(429, "request_too_large_for_limit", format(
      "This request alone is reckoned to need more %s than the key's limit of %d per minute allows.", what, limit))
  end
  return errors.send(429, "rate_limit_exceeded", format("The key's limit of %d %s per minute is used up.", limit, what),
    nil, retry_ms / 1000)
end

--- Lets a request in or ends it with 429. Fills `r.limited`, what the `x-ratelimit-*` headers say.
-- @param cost tokens that the request is reckoned to need
function _M.admit(r, key, cost)
  local wall = ngx.now() * 1000
  local minute = window(wall)
  local requests, tokens = counts(key, minute)
  local requests_before, tokens_before = counts(key, minute - 1)
  local limited = { minute = minute }
  r.limited = limited
  local per_minute = key.requests_per_minute
  if per_minute then
    local ok, remaining, reset, retry = check(per_minute, requests_before, requests, wall, 1)
    limited.requests, limited.requests_left, limited.requests_reset = per_minute, max(0, remaining - 1), reset
    if not ok then
      return refuse("requests", per_minute, retry)
    end
  end
  per_minute = key.tokens_per_minute
  if per_minute then
    local ok, remaining, reset, retry = check(per_minute, tokens_before, tokens, wall, cost)
    limited.tokens, limited.tokens_left, limited.tokens_reset = per_minute, max(0, remaining - cost), reset
    if not ok then
      return refuse("tokens", per_minute, retry)
    end
  end
  dict:incr(name_of("r:", key, minute), 1, 0, KEPT_S)
  dict:incr(name_of("t:", key, minute), cost, 0, KEPT_S)
  limited.charged = cost
end

--- Counts what the request really used instead of what it was reckoned to.
-- @param used tokens
function _M.settle(r, used)
  local limited = r.limited
  if limited and limited.charged and used ~= limited.charged then
    dict:incr(name_of("t:", r.key, limited.minute), used - limited.charged, 0, KEPT_S)
    limited.charged = used
  end
end

local function put(header, what, limit, left, reset_ms)
  header["x-ratelimit-limit-" .. what] = limit
  header["x-ratelimit-remaining-" .. what] = left
  header["x-ratelimit-reset-" .. what] = format("%ds", ceil(reset_ms / 1000))
end

--- Writes the usual headers; in the header filter.
function _M.headers(r)
  local limited, header = r.limited, ngx.header
  if limited.requests then
    put(header, "requests", limited.requests, limited.requests_left, limited.requests_reset)
  end
  if limited.tokens then
    put(header, "tokens", limited.tokens, limited.tokens_left, limited.tokens_reset)
  end
end

--- This gateway's own use per key in the current minute, for its lease.
-- @param settings table or nil
local function use(settings)
  local list = {}
  local minute = window(ngx.now() * 1000)
  for _, key in ipairs(settings and settings.keys or {}) do
    if key.requests_per_minute or key.tokens_per_minute then
      local requests = dict:get(name_of("r:", key, minute))
      if requests then
        list[key.id] = {
          minute = minute, requests = requests, tokens = max(0, dict:get(name_of("t:", key, minute)) or 0),
        }
      end
    end
  end
  return list
end

--- Offers the figures to the lease; in init_worker.
-- @param settings function() -> the current settings, or nil
function _M.publish(settings)
  lease.provide_key_use(function()
    return use(settings())
  end)
end

return _M
