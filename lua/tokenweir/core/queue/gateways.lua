--- One order over several gateways, approximately. Each tells the others in its lease how far its queue is: V, and the
-- tag of its first waiter. All are told on one scale, that of whoever began to wait first: a queue in which somebody
-- begins to wait is set to where the others are; one that has fallen far behind is taken to be a little behind only.
--
-- Nobody can hand a place to another gateway. But a gateway whose first one stands behind that of another leaves what
-- is released alone for a moment, in which the other hears of it and takes it; then it serves for as long, whatever the
-- others say. If the other does not move for several such moments, it is probably waiting for something else, and is
-- left one more rarely; never not at all, since it may only have heard too late each time.
local exp, max, min = math.exp, math.max, math.min

--- What was heard is believed for so long, ms.
local STALE_MS = 1000
--- Two leases and two looks at them.
local YIELD_MS = 300
--- Moments that are left to the same first waiter one after the other; each further one after twice as long.
local MOST_YIELDS, LONGEST_PAUSE_MS = 5, 10000
--- A first one is before another if it is so many requests like it before; in first-come order, so many ms.
local MARGIN_COSTS, MARGIN_MS = 2, 300
--- How far behind a queue is taken to be, at most: so many ms of V's rise where it rises fastest, as far as that is
-- known: the memory of it, and what has to have been seen.
local BEHIND_MS, MEMORY_MS, SEEN_MS = 5000, 10000, 1000

local _M = { STALE_MS = STALE_MS, YIELD_MS = YIELD_MS, MOST_YIELDS = MOST_YIELDS }

-- Measures how fast V rises elsewhere.
local function follow(queue, clock, now)
  local passed = now - queue.peer_at
  if queue.peer_at == 0 or passed >= STALE_MS then
    queue.peer_rise, queue.peer_passed = 0, 0
  elseif passed > 0 then
    local kept = exp(-passed / MEMORY_MS)
    queue.peer_rise = kept * queue.peer_rise + max(0, clock - queue.peer_clock)
    queue.peer_passed = kept * queue.peer_passed + passed
  end
end

--- Takes what the others told, again and again.
-- @param queue tw_queue; @param front, clock of those others in whose queue somebody waits: the lowest front, the
--   highest V; nil: nobody waits elsewhere
function _M.hear(queue, front, clock, now)
  if not front then
    queue.peer_at = 0
    return
  end
  if front ~= queue.peer_front then
    queue.yields = 0
  end
  follow(queue, clock, now)
  queue.peer_front, queue.peer_clock, queue.peer_at = front, clock, now
  local rate = queue.peer_passed >= SEEN_MS and queue.peer_rise / queue.peer_passed or 0
  if rate > 0 then
    -- Its own may be slow just because it has few waiters: they must not be moved back for that.
    rate = queue.rise > 0 and max(rate, queue.rise / queue.rise_passed) or rate
    queue.offset = max(queue.offset, clock - BEHIND_MS * rate - queue.clock)
  end
end

--- @return boolean, whether somebody waits in another gateway
function _M.somebody(queue, now)
  return queue.peer_at ~= 0 and now - queue.peer_at < STALE_MS
end

--- Somebody begins to wait where nobody did.
function _M.align(queue, now)
  if _M.somebody(queue, now) then
    queue.offset = queue.peer_clock - queue.clock
  end
end

--- What others are told.
-- @param lowest tag, or place in the order
-- @return front, clock on the common scale
function _M.tell(queue, lowest)
  return lowest + queue.offset, queue.clock + queue.offset
end

-- How long the queue serves between two moments, the first of them included.
local function pause(yields)
  return yields < MOST_YIELDS and 2 * YIELD_MS or min(LONGEST_PAUSE_MS, 4 * YIELD_MS * 2 ^ (yields - MOST_YIELDS))
end

--- Whether what was released is left to another gateway for now.
-- @param lowest the lowest tag here; @param cost of the first waiter, nil in first-come order
function _M.yields(queue, lowest, cost, now, tide)
  if queue.peer_at == 0 or now - queue.peer_at >= STALE_MS then
    return false
  end
  if now < queue.yield_at + YIELD_MS then
    return true
  elseif now < queue.yield_at + pause(queue.yields) or tide ~= tide or tide == queue.yield_tide then
    return false
  end
  if lowest + queue.offset <= queue.peer_front + (cost and MARGIN_COSTS * cost or MARGIN_MS) then
    return false
  end
  queue.yield_at, queue.yield_tide, queue.yields = now, tide, queue.yields + 1
  return true
end

return _M
