--- Tables that serve one request after another, with the same members each time.
--
-- LuaJIT drops members that are nil whenever a table has to grow, and a table has to grow for each member that it has
-- dropped: one that is cleared and filled again for every request is laid out anew every time, which takes longer than
-- all that the request then does with it. With room for every member from the start none is ever dropped.
local new_table = require "table.new"

local _M = {}

--- @tparam number members how many different names it will ever have, at least
-- @tparam[opt] table first what it holds at first
function _M.new(members, first)
  local made = new_table(0, members)
  for name, value in pairs(first or {}) do
    made[name] = value
  end
  return made
end

return _M
