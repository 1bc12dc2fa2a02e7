--- Requests and tokens per minute of an API key: own counts in a shared dict, other gateways' from their leases.
--
-- Tokens are counted as predicted when the request is let in, and corrected when it has ended. Windows are cut by wall
-- time, so that all gateways cut them alike.
local errors = require "tokenweir.errors"
local lease = require "tokenweir.lease"
local metrics = require "tokenweir.metrics"
local peers = require "tokenweir.peers"
local ratelimit = require "tokenweir.core.ratelimit"

local dict = ngx.shared.tokenweir_limits
local ngx = ngx
local check, window = ratelimit.check, ratelimit.window
local key_use = peers.key_use
local ceil, max, min = math.ceil, math.max, math.min
local format = string.format

local KEPT_S = 180

local _M = {}

local told = false

-- The dict's names of a key's counts of requests and tokens, in a minute and in the one before; kept with the key.
local function names_of(key, minute)
  local names = key.names
  if not names then
    names = {}
    key.names = names
  end
  if names.minute ~= minute then
    local before = minute - 1
    names.minute = minute
    names.requests, names.tokens = "r:" .. key.id .. ":" .. minute, "t:" .. key.id .. ":" .. minute
    names.requests_before, names.tokens_before = "r:" .. key.id .. ":" .. before, "t:" .. key.id .. ":" .. before
  end
  return names
end

-- A full dict forgets the counts of other keys, which are let in again too early.
local function add(name, amount)
  local _, _, forgot = dict:incr(name, amount, 0, KEPT_S)
  if forgot then
    metrics.add("limit_counts_lost", 1)
    if not told then
      told = true
      ngx.log(ngx.WARN, "tokenweir: there is no room for the use of all keys, limits of some are not kept: ",
        "the gateway must be rendered anew for so many keys")
    end
  end
end

local function refuse(what, limit, retry_ms)
  return errors.send(429, "rate_limit_exceeded", format("The key's limit of %d %s per minute is used up.", limit, what),
    nil, retry_ms / 1000)
end

--- Lets a request in or ends it with 429. Fills `r.limited`, what the `x-ratelimit-*` headers say.
-- @param cost tokens that the request is reckoned to need. A prediction alone makes no request impossible: more than
--   the limit is not asked for, and what it really used is counted when it has ended.
function _M.admit(r, key, cost)
  local wall = ngx.now() * 1000
  local minute = window(wall)
  local names = names_of(key, minute)
  local limited = r.limits or {}
  r.limits = limited
  limited.minute, limited.requests, limited.tokens, limited.charged = minute, nil, nil, nil
  r.limited = limited
  local requests, tokens = key_use(key.id, minute)
  local requests_before, tokens_before = key_use(key.id, minute - 1)
  local per_minute = key.requests_per_minute
  if per_minute then
    local ok, remaining, reset, retry = check(per_minute, requests_before + (dict:get(names.requests_before) or 0),
      requests + (dict:get(names.requests) or 0), wall, 1)
    limited.requests, limited.requests_left, limited.requests_reset = per_minute, remaining, reset
    if not ok then
      return refuse("requests", per_minute, retry)
    end
  end
  per_minute = key.tokens_per_minute
  if per_minute then
    cost = min(cost, per_minute)
    local ok, remaining, reset, retry = check(per_minute, tokens_before + (dict:get(names.tokens_before) or 0),
      tokens + (dict:get(names.tokens) or 0), wall, cost)
    limited.tokens, limited.tokens_left, limited.tokens_reset = per_minute, remaining, reset
    if not ok then
      if limited.requests then
        limited.requests_left = limited.requests_left + 1  -- it does not count
      end
      return refuse("tokens", per_minute, retry)
    end
  end
  add(names.requests, 1)
  add(names.tokens, cost)
  limited.charged = cost
end

--- Counts what the request really used instead of what it was reckoned to.
-- @param used tokens
function _M.settle(r, used)
  local limited = r.limited
  if limited and limited.charged and used ~= limited.charged then
    -- In the minute of its admission, which may be over.
    add("t:" .. r.key.id .. ":" .. limited.minute, used - limited.charged)
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

--- This gateway's own use per key in the current minute and the one before, for its lease.
-- @param settings table or nil
local function use(settings)
  local list = {}
  local minute = window(ngx.now() * 1000)
  for _, key in ipairs(settings and settings.keys or {}) do
    if key.requests_per_minute or key.tokens_per_minute then
      local names = names_of(key, minute)
      local requests, before = dict:get(names.requests), dict:get(names.requests_before)
      if requests or before then
        list[key.id] = {
          minute = minute, requests = requests or 0, tokens = max(0, dict:get(names.tokens) or 0),
          requests_before = before or 0, tokens_before = max(0, dict:get(names.tokens_before) or 0),
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
