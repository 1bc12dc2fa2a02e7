--- Fair queueing by static tags: who waits gets `max(V, last tag of its flow) + work / weight` once, and the lowest tag
-- goes first (self-clocked fair queueing: Golestani, INFOCOM 1994). A flow is what shares alike with others: what an
-- API key, or a client's address, asks for in one class.
--
-- Thousands of requests of one flow stand one behind the other, so they delay the single request of another flow by
-- one of theirs at most; of requests that come alone the smaller goes first; and V rises for ever, so every tag's time
-- comes.
--
-- Besides, each class has a floor: the share of all work that it is served while it has waiters, whatever the tags say.
local ffi = require "ffi"
local hash = require "tokenweir.core.hash"
local memory = require "tokenweir.core.queue.memory"

local max, min = math.max, math.min
local tonumber, type = tonumber, type
local hash_string = hash.string
local u64 = ffi.typeof("uint64_t")
local LAST_SET = u64(memory.FLOW_SETS - 1)
local LAST_WAY = 3
local band = require("bit").band

local _M = {}

--- @param name string that tells a flow
-- @return uint64_t as the other functions take it
function _M.flow(name)
  return type(name) == "string" and hash_string(name) or u64(name or 0)
end

local function find(queue, flow)
  local set = queue.flows[tonumber(band(flow, LAST_SET))]
  for k = 0, LAST_WAY do
    local way = set.way[k]
    if way.key == flow then
      return way, set
    end
  end
  return nil, set
end

-- A flow whose last tag has been served is as good as one that never was; of those that were not the lowest goes.
local function place(set)
  local best = set.way[0]
  for k = 1, LAST_WAY do
    if set.way[k].tag < best.tag then
      best = set.way[k]
    end
  end
  return best
end

--- Gives a tag.
-- @param queue tw_queue; @param flow uint64_t; @param cost work over weight; @param alone whether nobody waits: then
--   all flows begin anew
-- @return number
function _M.give(queue, flow, cost, alone)
  if alone and queue.clock < queue.issued then
    queue.clock = queue.issued
  end
  local way, set = find(queue, flow)
  local tag = max(queue.clock, way and way.tag or 0) + cost
  if not way then
    way = place(set)
    way.key = flow
  end
  way.tag = tag
  if tag > queue.issued then
    queue.issued = tag
  end
  return tag
end

--- One that was not served leaves: if it was the last of its flow, that owes no more for it.
function _M.take_back(queue, flow, tag, cost)
  local way = find(queue, flow)
  if way and way.tag == tag then
    way.tag = tag - cost
  end
end

--- One was served.
-- @param lowest the lowest tag of all that waited, its own included: one that passes others moves V no further
function _M.serve(queue, lowest)
  if lowest > queue.clock then
    queue.clock = lowest
  end
end

--- The first of a class has come to wait: it is owed its first turn when others have had their share.
-- @param served work served by all so far
function _M.owe(queue, class, floor, work, served)
  if floor > 0 then
    queue.due[class] = max(queue.due[class], served + work / floor)
  end
end

--- Whether a class that has waiters is owed a turn.
function _M.owed(queue, class, floor, served)
  return floor > 0 and served >= queue.due[class]
end

--- One of a class was served.
function _M.settle(queue, class, floor, work, served)
  if floor > 0 then
    -- A class that was due a little ago is due the next time so much earlier, but it saves nothing up.
    local due, between = queue.due[class], work / floor
    queue.due[class] = max(served - between, min(served, due)) + between
  end
end

return _M
