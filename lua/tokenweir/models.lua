--- Models: what exists, what a key may see of it, GET /v1/models and GET /v1/models/ID.
local auth = require "tokenweir.auth"
local clock = require "tokenweir.clock"
local current_context = require "tokenweir.current_context"
local errors = require "tokenweir.errors"
local json_string = require "tokenweir.core.json.string"
local path = require "tokenweir.core.body.path"
local state = require "tokenweir.state"

local ngx = ngx
local concat, sort = table.concat, table.sort
local floor = math.floor
local sub = string.sub
local next, pairs = next, pairs
local encode = json_string.encode

local MOST_LISTED = 20

local _M = {}

-- Of the last fleet: the names in order (aliases too), each name's JSON, the list of all as JSON.
local cache = { fleet = nil, names = {}, entries = {}, list = nil }

local function entry_of(name, pool, created)
  local root = pool.name ~= name and ',"root":' .. encode(pool.name) or ""
  return '{"id":' .. encode(name) .. ',"object":"model","created":' .. created .. ',"owned_by":"tokenweir"'
    .. root .. "}"
end

local function list_of(entries)
  return '{"object":"list","data":[' .. concat(entries, ",") .. "]}"
end

--- Makes the answers of a newly applied fleet.
function _M.prepare(fleet)
  local names, entries, list = {}, {}, {}
  -- OpenAI's clients want a time; that of the fleet's first sight here is as good as any.
  local created = cache.created or floor(ngx.now())
  for name in pairs(fleet.models) do
    names[#names + 1] = name
  end
  sort(names)
  for k = 1, #names do
    entries[names[k]] = entry_of(names[k], fleet.models[names[k]], created)
    list[k] = entries[names[k]]
  end
  cache = { fleet = fleet, names = names, entries = entries, list = list_of(list), created = created }
end

local function cached(fleet)
  if cache.fleet ~= fleet then
    _M.prepare(fleet)
  end
  return cache
end

-- The names that a key may see, in order.
local function visible(fleet, key)
  local all = cached(fleet).names
  if not key or not key.models then
    return all
  end
  local names = {}
  for k = 1, #all do
    if auth.allows(key, all[k], fleet.models[all[k]].name) then
      names[#names + 1] = all[k]
    end
  end
  return names
end

-- The configured model of a path: that of the longest prefix.
local function of_path(paths, asked)
  local longest, name = 0, nil
  for prefix, model in pairs(paths) do
    if #prefix > longest and sub(asked, 1, #prefix) == prefix then
      longest, name = #prefix, model
    end
  end
  return name
end

--- The model of requests that name none: the one configured for the path or for all, or the only one there is.
-- @return string or nil
function _M.default(known)
  local settings = known.settings
  local name = next(settings.paths) and of_path(settings.paths, ngx.var.uri) or settings.default_model
  if name then
    return name
  end
  local models = known.fleet.models
  local only = next(models)
  if not only then
    return nil
  end
  local pool = models[only]
  for _, other in pairs(models) do
    if other ~= pool then
      return nil
    end
  end
  return pool.name
end

--- @return string a sentence with the names that a key may use
function _M.listing(known, key)
  local names = visible(known.fleet, key)
  local shown = {}
  for k = 1, math.min(#names, MOST_LISTED) do
    shown[k] = errors.echo(names[k])
  end
  if #shown == 0 then
    return "No models are available."
  end
  local more = #names > #shown and " and " .. #names - #shown .. " more" or ""
  return "Available models: " .. concat(shown, ", ") .. more .. "."
end

local function is_configured(settings, name)
  for _, model in pairs(settings.models) do
    if model.name == name then
      return true
    end
    for _, alias in pairs(model.aliases) do
      if alias == name then
        return true
      end
    end
  end
  return false
end

--- Ends a request for a model that cannot be served: not there, not for this key, or without any backend now.
-- What a key may not use looks to it as if it were not there.
function _M.refuse(known, key, name, pool)
  current_context.get().asked = json_string.encode(errors.echo(name))
  if not pool and is_configured(known.settings, name) and auth.allows(key, name, name) then
    return errors.send(503, "no_capacity", "No backend serves model '" .. errors.echo(name) .. "' now.", nil, 5,
      '"reason":"no_capacity"')
  end
  if not next(known.fleet.models) and known.fleet.size > 0 and auth.allows(key, name, name) then
    return errors.send(503, "no_capacity",
      "No backend has told its models yet, so that none can be sent this request.", nil, 5, '"reason":"no_capacity"')
  end
  return errors.send(404, "model_not_found",
    "The model '" .. errors.echo(name) .. "' does not exist. " .. _M.listing(known, key), "model")
end

local function answer(text)
  local header = ngx.header
  header["Content-Type"] = "application/json"
  header["Content-Length"] = #text
  current_context.get().answered = true
  if ngx.req.get_method() ~= "HEAD" then
    ngx.print(text)
  end
end

-- What both answers need: a path that is refused nowhere else, a GET, a fleet, a good key.
local function begin(escaped_slashes)
  local ok, wrong = path.check(path.of(ngx.var.request_uri), escaped_slashes)
  if not ok then
    return errors.send(400, "invalid_path", "This path cannot be answered: " .. wrong .. ".")
  end
  local method = ngx.req.get_method()
  if method ~= "GET" and method ~= "HEAD" then
    ngx.header["Allow"] = "GET, HEAD"
    return errors.send(405, "method_not_allowed", "Models can only be listed here: use GET.")
  end
  local known = state.current(clock.ms())
  if not known.settings or not known.fleet then
    return errors.starting()
  end
  return known, auth.check(known.settings)
end

--- GET /v1/models: the union of what the fleet serves.
function _M.list()
  local known, key = begin()
  local all = cached(known.fleet)
  if not key or not key.models then
    return answer(all.list)
  end
  local names, entries = visible(known.fleet, key), {}
  for k = 1, #names do
    entries[k] = all.entries[names[k]]
  end
  return answer(list_of(entries))
end

--- GET /v1/models/ID; an id may hold slashes, which some clients escape.
function _M.one()
  local known, key = begin(true)
  local name = ngx.var.uri:sub(#"/v1/models/" + 1)
  local pool = known.fleet.models[name]
  if not pool or not auth.allows(key, name, pool.name) then
    return errors.send(404, "model_not_found",
      "The model '" .. errors.echo(name) .. "' does not exist. " .. _M.listing(known, key), "model")
  end
  return answer(cached(known.fleet).entries[name])
end

return _M
