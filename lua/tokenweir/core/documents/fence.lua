--- Which snapshot follows which: the order of (fence, sequence), and when a lower one is taken all the same.
--
-- A lower fence is a deposed leader's. But where Redis was emptied, restored or moved to a host whose clock is behind,
-- the fence that a gateway remembers may never come again, and it must not be locked out: a lower snapshot is taken
-- when the own one is stale and either was only read from disk, or the other has been moving on for ten seconds.
-- What does not move on is a leftover, not a leader.
local RIVAL_MS = 10000

local _M = { RIVAL_MS = RIVAL_MS }

--- @param own table or nil, the snapshot in use: `fence`, `sequence`, `stale`, `from_disk`
-- @param fence, sequence numbers of the snapshot offered
-- @param now ms
-- @param rival table kept by the caller between two calls; empty at first
-- @return "newer" (take it), "same", or, to be refused, "lower fence" or "lower sequence"
function _M.judge(own, fence, sequence, now, rival)
  if not own or fence > own.fence or (fence == own.fence and sequence > own.sequence) then
    rival.fence = nil
    return "newer"
  end
  if fence == own.fence and sequence == own.sequence then
    return "same"
  end
  if own.stale then
    if own.from_disk and fence ~= own.fence then
      return "newer"
    end
    if rival.fence ~= fence or sequence < rival.sequence then
      rival.fence, rival.sequence, rival.since, rival.moved = fence, sequence, now, now
    elseif sequence > rival.sequence then
      if now - rival.moved > RIVAL_MS then
        rival.since = now
      end
      rival.sequence, rival.moved = sequence, now
      if now - rival.since >= RIVAL_MS then
        rival.fence = nil
        return "newer"
      end
    end
  end
  return fence < own.fence and "lower fence" or "lower sequence"
end

return _M
