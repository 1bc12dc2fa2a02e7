--- Places of backends and models in the shared region: name -> number, the same in every worker and over reloads.
--
-- A name keeps its place for as long as a worker touches it. A new name takes a place that was never used, or, when
-- there is none left, that of a name untouched for a minute of which nothing is in flight.
local ffi = require "ffi"
local bit = require "bit"
local cache_memory = require "tokenweir.core.sessions.cache_memory"
local clock = require "tokenweir.clock"
local health = require "tokenweir.core.backend.health"
local region = require "tokenweir.region"
local scoreboard = require "tokenweir.scoreboard"

local ffi_string, copy, fill = ffi.string, ffi.copy, ffi.fill
local now_ms = clock.ms

local NAME_BYTES = 255
local FORGET_MS = 60000

local _M = {}

--- What is said where there is none of `count` places left.
function _M.full(count)
  return "all " .. count .. " places are in use"
end

-- Places found before, by name. Another worker may have given one away since, so the region has the last word.
local found = {}

local function holds(entry, name)
  return entry.length == #name and ffi_string(entry.bytes, #name) == name
end

--- Where the name lives, or nil.
local function find(names, count, name)
  local known = found[name]
  if known and known < count and holds(names[known], name) then
    return known
  end
  for k = 0, count - 1 do
    if holds(names[k], name) then
      found[name] = k
      return k
    end
  end
end

local function idle_backend(index)
  local rows, _, count = scoreboard.live()
  for k = 1, count do
    if rows[k][index].n ~= 0 then
      return false
    end
  end
  return true
end

local function idle_model(index)
  local _, workers, count = scoreboard.live()
  for k = 1, count do
    if workers[k].depth[index] ~= 0 then
      return false
    end
  end
  return true
end

local function clear_backend(index)
  health.clear(region.map().health[index])
  cache_memory.lose(region.cache(), index)
end

local function clear_model(index)
  region.map().arrivals[index] = 0
end

local function free_place(names, count, is_idle, now)
  for k = 0, count - 1 do
    if names[k].length == 0 then
      return k
    end
  end
  for k = 0, count - 1 do
    if now - names[k].seen > FORGET_MS and is_idle(k) then
      return k
    end
  end
end

local function insert(names, count, name, is_idle, clear)
  local now = now_ms()
  local place = find(names, count, name)
  if not place then
    place = free_place(names, count, is_idle, now)
    if not place then
      return nil, _M.full(count)
    end
    local entry = names[place]
    entry.length = 0
    clear(place)
    fill(entry.bytes, NAME_BYTES + 1)
    copy(entry.bytes, name, #name)
    entry.length = #name
  end
  names[place].seen = now
  return place
end

local function place_of(names, count, name, is_idle, clear, only_known)
  if #name > NAME_BYTES then
    -- Model names may be longer; a digest in their place is as good a name here.
    name = name:sub(1, 200) .. _M.digest(name)
  end
  local place = find(names, count, name)
  if place then
    names[place].seen = now_ms()
    return place
  elseif only_known then
    return nil, "it has none"
  end
  return region.guarded(insert, names, count, name, is_idle, clear)
end

--- Two 32-bit FNV-1a hashes of a string, as 16 hex digits.
function _M.digest(text)
  local a, b = 0x811c9dc5, 0x1000193
  for k = 1, #text do
    local byte = text:byte(k)
    a = bit.tobit((bit.bxor(a, byte) * 16777619ULL) % 4294967296ULL)
    b = bit.tobit((bit.bxor(b, 255 - byte) * 16777619ULL) % 4294967296ULL)
  end
  return bit.tohex(a) .. bit.tohex(b)
end

--- The place of a backend, given out anew if it has none.
-- @return number 0 .. max_backends - 1; or nil, err
function _M.backend(id)
  return place_of(region.map().backend_name, region.BACKENDS, id, idle_backend, clear_backend)
end

--- The place of a model, given out anew if it has none.
-- @param only_known boolean, not to be given out anew
-- @return number 0 .. max_models - 1; or nil, err
function _M.model(name, only_known)
  return place_of(region.map().model_name, region.MODELS, name, idle_model, clear_model, only_known)
end

--- Keeps places from being given to others.
-- @param places cdata or table of backend places, read at 1 .. count
function _M.touch_backends(places, count, now)
  local names = region.map().backend_name
  for k = 1, count do
    names[places[k]].seen = now
  end
end

--- Keeps a model's place from being given to another.
function _M.touch_model(place, now)
  region.map().model_name[place].seen = now
end

--- @return string the backend at a place, or nil
function _M.backend_at(place)
  local entry = region.map().backend_name[place]
  if entry.length == 0 then
    return nil
  end
  return ffi_string(entry.bytes, entry.length)
end

return _M
