--- One order over several gateways, approximately. Each tells the others in its lease how far its queue is: V, and the
-- tag of its first waiter. All are told on one scale, that of whoever began to wait first: a queue in which somebody
-- begins to wait is set to where the others are; one that has fallen far behind is taken to be a little behind only.
--
-- Nobody can hand a place to another gateway. But a gateway whose first one stands behind that of another leaves what
-- is released alone for a moment, in which the other hears of it and takes it; then it serves for as long, whatever the
-- others say. If the other does not move for several such moments, it is waiting for something else.
local max = math.max

--- What was heard is believed for so long, ms.
local STALE_MS = 1000
--- Two leases and two looks at them.
local YIELD_MS = 300
--- Moments that are left to the same first waiter.
local MOST_YIELDS = 5
--- A first one is before another if it is so many requests like it before; in first-come order, so many ms.
local MARGIN_COSTS, MARGIN_MS = 2, 300
--- How far behind a queue is taken to be, at most: so many ms of V's rise.
local BEHIND_MS = 5000

local _M = { STALE_MS = STALE_MS, YIELD_MS = YIELD_MS, MOST_YIELDS = MOST_YIELDS }

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
  queue.peer_front, queue.peer_clock, queue.peer_at = front, clock, now
  if queue.rise > 0 then
    local least = clock - BEHIND_MS * queue.rise / queue.rise_passed
    queue.offset = max(queue.offset, least - queue.clock)
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

--- Whether what was released is left to another gateway for now.
-- @param lowest the lowest tag here; @param cost of the first waiter, nil in first-come order
function _M.yields(queue, lowest, cost, now, tide)
  if queue.peer_at == 0 or now - queue.peer_at >= STALE_MS then
    return false
  end
  if now < queue.yield_at + YIELD_MS then
    return true
  elseif now < queue.yield_at + 2 * YIELD_MS or tide ~= tide or tide == queue.yield_tide
    or queue.yields >= MOST_YIELDS then
    return false
  end
  if lowest + queue.offset <= queue.peer_front + (cost and MARGIN_COSTS * cost or MARGIN_MS) then
    return false
  end
  queue.yield_at, queue.yield_tide, queue.yields = now, tide, queue.yields + 1
  return true
end

return _M
