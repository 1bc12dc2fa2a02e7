--- API keys of clients: by the SHA-256 of what follows "Bearer ".
local errors = require "tokenweir.errors"
local json_string = require "tokenweir.core.json.string"
local session = require "tokenweir.core.body.session"
local sha256 = require "tokenweir.sha256"

local variable = require("tokenweir.variable").get
local byte, char, find, lower, sub = string.byte, string.char, string.find, string.lower, string.sub
local bor, bxor = bit.bor, bit.bxor
local ipairs, tonumber = ipairs, tonumber

local MOST_SEEN = 4096

local _M = {}

-- Digest -> key, and the header values of this worker's last good requests -> key, so that a busy client costs one
-- lookup. Only good ones are kept, so guesses cannot fill it.
local by_digest, seen, seen_count, generation = {}, {}, 0, nil

local function bytes_of(hex)
  return (hex:gsub("%x%x", function(pair)
    return char(tonumber(pair, 16))
  end))
end

local function set_of(list)
  if not list then
    return nil
  end
  local set = {}
  for _, name in ipairs(list) do
    set[name] = true
  end
  return set
end

--- Takes the keys of newly applied settings.
function _M.prepare(settings)
  by_digest, seen, seen_count, generation = {}, {}, 0, settings
  for _, key in ipairs(settings.keys) do
    local digest = bytes_of(key.sha256)
    by_digest[digest] = {
      id = key.id, json = json_string.encode(key.id), digest = digest, models = set_of(key.models),
      max_priority = key.max_priority,
      requests_per_minute = key.requests_per_minute, tokens_per_minute = key.tokens_per_minute,
      limited = key.requests_per_minute or key.tokens_per_minute, deadline_ms = key.deadline_ms,
      weight = key.weight, burst_exempt = key.burst_exempt, seed = session.seed(key.id),
    }
  end
end

--- Whether two digests are equal, in a time that does not depend on where they differ.
local function same(a, b)
  local difference = 0
  for k = 1, 32 do
    difference = bor(difference, bxor(byte(a, k), byte(b, k)))
  end
  return difference == 0
end

local function look_up(header)
  if lower(sub(header, 1, 7)) ~= "bearer " then
    return nil
  end
  local first = find(header, "%S", 8)
  local last = first and find(header, "%s*$", first) - 1
  if not first then
    return nil
  end
  local digest = sha256.bytes(sub(header, first, last))
  local key = by_digest[digest]
  return key and same(key.digest, digest) and key or nil
end

--- Whether the gateway asks for keys at all. Then a client's key is not passed on to the engines.
function _M.wanted(settings)
  return settings.require_key or #settings.keys > 0
end

--- The client's key; a request without a good one ends here.
-- @param settings table, `known.settings`
-- @return table {id, json (the id), models (set, or nil: all), max_priority, requests_per_minute, tokens_per_minute,
--   limited, deadline_ms, weight, burst_exempt, seed (of its sessions)}; nil where no keys are asked for
function _M.check(settings)
  if not settings.require_key and #settings.keys == 0 then
    return nil
  end
  if settings ~= generation then
    _M.prepare(settings)
  end
  local header = variable("http_authorization")
  if not header then
    return errors.send(401, "missing_api_key", "An API key is needed: send it as 'Authorization: Bearer KEY'.")
  end
  local key = seen[header]
  if key then
    return key
  end
  key = look_up(header)
  if not key then
    return errors.send(401, "invalid_api_key", "The API key is not known here.")
  end
  if seen_count >= MOST_SEEN then
    seen, seen_count = {}, 0
  end
  seen[header], seen_count = key, seen_count + 1
  return key
end

--- Whether a key may use a model.
-- @param key table or nil; @param asked the name in the request; @param public the model's own name
function _M.allows(key, asked, public)
  local models = key and key.models
  return not models or models[public] or models[asked] or false
end

local RANK = { high = 3, normal = 2, low = 1 }

--- The request's priority: what it asks for, as far as its key lets it.
-- @param asked string or nil, the value of X-Priority
function _M.priority(key, asked)
  if asked then
    asked = lower(asked)
  end
  asked = RANK[asked] and asked or "normal"
  local most = key and key.max_priority
  if most and RANK[asked] > RANK[most] then
    return most
  end
  return asked
end

return _M
