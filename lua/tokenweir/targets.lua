--- What the proxy needs of each backend, made once per fleet: the request path then only looks it up.
--
-- Adds to a fleet `target[i]` = { id, host, port, authority, tls, verify, sni, wants_key (or nil), authorization,
-- state, apart, closes (after an answer, without a word), place, group, runs_on (after its client left), prefill and
-- step (ms per prompt token, and per output token at a usual load) } and to each of its models `upstream_of[i]`, the
-- engine's name of the model, and `alternates[i]`, how many other backends a request sent to i may be retried on: same
-- credentials, same engine's name, same way of connecting (a request's bytes and its Host are fixed when the first
-- backend is chosen).
local credentials = require "tokenweir.credentials"
local json_string = require "tokenweir.core.json.string"
local traits = require("tokenweir.core.backend.engine").traits
local utf8 = require "tokenweir.core.utf8"

local pairs = pairs
local encode = json_string.encode
local find, gsub = string.find, string.gsub

-- In place of a backend's state while its key is not known.
local NO_KEY = "no_key"

local _M = { NO_KEY = NO_KEY }

local function address(host)
  return find(host, ":", 1, true) and "[" .. host .. "]" or host
end

-- nginx keeps idle connections by address alone. Where one address answers for several TLS names, a connection that was
-- verified for one must not carry another's request: such backends get a connection each time.
local function shared_addresses(fleet)
  local first, shared = {}, {}
  for i = 1, fleet.size do
    if fleet.tls[i] then
      local at = fleet.host[i] .. " " .. fleet.port[i]
      local identity = fleet.sni[i] .. (fleet.tls_verify[i] and "" or " unverified")
      if first[at] and first[at] ~= identity then
        shared[at] = true
      end
      first[at] = first[at] or identity
    end
  end
  return shared
end

--- Whether a request made for backend a can be sent to backend b unchanged.
function _M.interchangeable(a, b)
  return a.group == b.group and a.tls == b.tls and a.verify == b.verify and a.apart == b.apart
end

local function add_alternates(fleet, pool)
  local upstream_of, alternates = {}, {}
  for k = 1, pool.size do
    upstream_of[pool[k]] = pool.upstream[k]
  end
  local likeness, alike = {}, {}
  for k = 1, pool.size do
    local target = fleet.target[pool[k]]
    likeness[k] = table.concat({
      pool.upstream[k], target.group, tostring(target.apart), tostring(target.tls), tostring(target.verify),
    }, "\0")
    alike[likeness[k]] = (alike[likeness[k]] or 0) + 1
  end
  for k = 1, pool.size do
    alternates[pool[k]] = alike[likeness[k]] - 1
  end
  pool.upstream_of, pool.alternates = upstream_of, alternates
end

--- Puts the backends' keys in. One whose key is not known is no candidate: without it the client's own key would go to
-- a server that asked for another.
function _M.authorize(fleet)
  local read = false
  for i = 1, fleet.size do
    local target = fleet.target[i]
    local name = target.wants_key
    if name then
      local authorization = credentials.authorization(name)
      if not authorization and not read then
        read = true
        credentials.refresh()
        authorization = credentials.authorization(name)
      end
      target.authorization = authorization
      fleet.state[i] = authorization and target.state or NO_KEY
    end
  end
end

--- Prepares a fleet; called whenever a document was applied.
function _M.prepare(fleet)
  if fleet.target then
    return
  end
  local shared = shared_addresses(fleet)
  local targets = {}
  for i = 1, fleet.size do
    local host, port = address(fleet.host[i]), fleet.port[i]
    local tls, kind = fleet.tls[i], traits(fleet.engine[i])
    local sni = tls and fleet.sni[i] or ""
    targets[i] = {
      id = fleet.id[i], place = fleet.place[i], group = fleet.credential_group[i], host = host, port = port,
      authority = fleet.host_header[i] ~= "" and fleet.host_header[i] or host .. ":" .. port,
      tls = tls, verify = tls and fleet.tls_verify[i], sni = sni,
      apart = tls and shared[fleet.host[i] .. " " .. port] or false, closes = kind.closes,
      wants_key = fleet.wants_key[i] ~= "" and fleet.wants_key[i] or nil, state = fleet.state[i],
      runs_on = not kind.stops, prefill = fleet.prefill[i], step = fleet.usual_step[i],
    }
  end
  fleet.target = targets
  _M.authorize(fleet)
  for _, pool in pairs(fleet.models) do
    if not pool.upstream_of then
      add_alternates(fleet, pool)
      pool.json = encode(utf8.is_valid(pool.name) and pool.name or gsub(pool.name, "[\128-\255]", "?"))
    end
  end
end

return _M
