--- Tables that serve one request after another, with the same members each time.
--
-- LuaJIT drops members that are nil whenever a table has to grow, and a table has to grow for each member that it has
-- dropped: one that is cleared and filled again for every request is laid out anew every time, which takes longer than
-- all that the request then does with it. With room for every member from the start it never grows.
--
-- Nor may a member be nil in a table that is used for each request. LuaJIT gives the place of one that is nil to
-- another that belongs there too: the two take turns, each time by a call, and whoever reads them finds them now here,
-- now there, for which compiled code must be left. So what is not there is false.
local new_table = require "table.new"

local _M = {}

--- Only the room.
-- @tparam number members how many different names it will ever have, at least
function _M.room(members)
  return new_table(0, members)
end

--- A table with all its members, all in the same places as in the others of the same names.
-- @tparam table names of its members: false at first
-- @tparam[opt] table more names
function _M.new(names, more)
  local count = #names
  local made = new_table(0, count + (more and #more or 0))
  for k = 1, count do
    made[names[k]] = false
  end
  for k = 1, more and #more or 0 do
    made[more[k]] = false
  end
  return made
end

return _M
