--- When one that waits is told anew where it stands: whenever its position has halved.

--- Between two hints at least.
local PAUSE_MS = 1000
local NEARER = 0.5

local _M = {}

--- Whether a position is worth another hint.
-- @param told table: `position` and `at` of the last hint; `count` of hints so far
-- @param most hints in all
function _M.is_due(told, position, now, most)
  if told.count >= most then
    return false
  end
  return told.count == 0 or now - told.at >= PAUSE_MS and position <= NEARER * told.position
end

--- Notes a hint.
function _M.note(told, position, now)
  told.position, told.at, told.count = position, now, told.count + 1
end

return _M
