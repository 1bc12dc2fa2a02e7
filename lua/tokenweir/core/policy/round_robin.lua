--- Each candidate in its turn, as often as its weight says (stride scheduling). It looks at no load and makes no
-- request wait. Turns are kept per worker and by place, so they outlive a snapshot.
local huge = math.huge

local _M = { name = "round_robin", by_turn = true }

-- place -> when its next turn is, on a clock that a backend of weight w moves on by 1 / w
local turns = {}
local clock = 0

--- See `policy/init.lua`.
function _M.pick(view, _, candidates, count)
  if count < 1 then
    return nil, "none"
  end
  local place_of, weight = view.fleet.place, view.fleet.weight
  local best, first = nil, huge
  for k = 1, count do
    local i = candidates[k]
    local turn = turns[place_of[i]]
    if not turn then
      -- Workers must not all begin with the same backend.
      turn = clock + view.random() / weight[i]
      turns[place_of[i]] = turn
    elseif turn < clock then
      turn = clock  -- it was away: its turns of that time are lost
    end
    if turn < first then
      best, first = i, turn
    end
  end
  clock = first
  turns[place_of[best]] = first + 1 / weight[best]
  return best
end

return _M
