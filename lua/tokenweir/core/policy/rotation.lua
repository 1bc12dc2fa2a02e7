--- A round through a list from a random place on: among equals the first would get all that is sent at one moment.
--
--     local shift = rotation.start(view, count)
--     for k = 1, count do
--       local i = list[rotation.at(k, shift, count)]
local floor = math.floor

local _M = {}

--- @param view see `policy/init.lua`
-- @return number before the first, 0 .. count - 1
function _M.start(view, count)
  return floor(view.random() * count)
end

--- @return number the place of the k-th, 1 .. count
function _M.at(k, shift, count)
  local at = k + shift
  if at > count then
    return at - count
  end
  return at
end

return _M
