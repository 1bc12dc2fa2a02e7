--- The parts of the shared region in which requests wait: what each worker shows of its waiters, summed over all.
-- `model` is a model's place in the region: `fleet.models[name].place`.
local ffi = require "ffi"
local gateways = require "tokenweir.core.queue.gateways"
local queue_memory = require "tokenweir.core.queue.memory"
local region = require "tokenweir.region"
local scoreboard = require "tokenweir.scoreboard"

local shared = region.map
local hear, somebody, tell = gateways.hear, gateways.somebody, gateways.tell
local huge, min = math.huge, math.min
local live, own_entry = scoreboard.live, scoreboard.own
local LAST_CLASS = queue_memory.LAST_CLASS

local _M = {}

--- What all workers share of a model's queue.
-- @return tw_queue
local function queue_of(model)
  return shared().queue[model]
end
_M.queue = queue_of

--- This worker's line of a model's queue: to be written.
-- @return tw_line
function _M.line(model)
  local own = own_entry()
  own.lined[model] = 1
  return own.line[model]
end

--- @param out table that gets the other live workers' lines of a model's queue
-- @return number of them
function _M.other_lines(model, out)
  local _, workers, count = live()
  local own, n = own_entry(), 0
  for k = 1, count do
    if workers[k] ~= own then
      n = n + 1
      out[n] = workers[k].line[model]
    end
  end
  return n
end

--- Keeps a backend's place from other models' requests for a moment; the model's own queue knows what it holds.
function _M.hold(model, place, until_ms)
  local map = shared()
  map.held_place, map.held_model, map.held_until = place, model, until_ms
end

--- @return number the place that is held for another model's first waiter, or nil
function _M.held(model, now)
  local map = shared()
  if map.held_until < now or map.held_model == model then
    return nil
  end
  return map.held_place
end

--- Publishes that one more of this worker's requests waits for a model, or, by -1, one less.
-- @param class number of the priority class; @param bytes of the request
function _M.count(model, class, more, bytes)
  local own = own_entry()
  own.depth[model] = own.depth[model] + more
  own.waiting_bytes[class] = own.waiting_bytes[class] + more * bytes
end

--- @return number of requests that wait for a model, in all workers
function _M.depth(model)
  local _, workers, count = live()
  local sum = 0
  for k = 1, count do
    sum = sum + workers[k].depth[model]
  end
  return sum
end

--- What other gateways are told of the order here.
-- @param order of `known.queue`; @param now, wall: this moment on the monotonic clock and on the wall's, ms
-- @return front, clock: see `core/queue/gateways.lua`; nil: nothing
function _M.front(model, order, now, wall)
  local queue = queue_of(model)
  if order == "score" then
    return nil
  elseif order == "fifo" then
    queue.offset = wall - now
  end
  local _, workers, count = live()
  local least = huge
  for k = 1, count do
    if workers[k].depth[model] > 0 then
      least = min(least, workers[k].line[model].lowest)
    end
  end
  if least < huge then
    return tell(queue, least)
  end
end

--- What they told.
function _M.hear(model, front, clock, now)
  hear(queue_of(model), front, clock, now)
end

--- @return boolean, whether somebody waits for a model in another gateway
function _M.somebody_elsewhere(model, now)
  return somebody(queue_of(model), now)
end

--- @param class number of the priority class, or nil: of all
-- @return number since when the oldest waiter of a model waits, over all workers, 0: nobody does; the id of its key
function _M.oldest(model, class)
  local _, workers, count = live()
  local oldest, key = 0, ""
  for k = 1, count do
    if workers[k].depth[model] > 0 then
      local line = workers[k].line[model]
      for c = class or 0, class or LAST_CLASS do
        local since = line.oldest[c]
        if since ~= 0 and (oldest == 0 or since < oldest) then
          oldest, key = since, line.label[c]
        end
      end
    end
  end
  return oldest, key ~= "" and ffi.string(key) or ""
end

--- @param class number of the priority class
-- @return number of requests of a class that wait for a model; their bytes
function _M.of_class(model, class)
  local _, workers, count = live()
  local requests, bytes = 0, 0
  for k = 1, count do
    if workers[k].depth[model] > 0 then
      local line = workers[k].line[model]
      requests, bytes = requests + line.count[class], bytes + line.bytes[class]
    end
  end
  return requests, bytes
end

--- @param class number of the priority class, or nil: of all
-- @return number bytes of the requests that wait in this gateway
function _M.waiting_bytes(class)
  local _, workers, count = live()
  local sum = 0
  for k = 1, count do
    for c = class or 0, class or LAST_CLASS do
      sum = sum + workers[k].waiting_bytes[c]
    end
  end
  return sum
end

return _M
