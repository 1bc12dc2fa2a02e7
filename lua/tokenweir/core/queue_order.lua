--- First come, first served over several workers.
--
-- Tickets come from one counter that all workers share. Each worker keeps its own waiting requests in ticket order
-- and shows the others its first one (0: nobody waits); a request may go when no worker shows an earlier one. A
-- waiter that leaves, anywhere in the line, is taken out at once.
local _M = {}

--- An empty line of one worker and one model.
function _M.new()
  return { first = 1, last = 0, size = 0, places = {} }
end

--- Appends a ticket; tickets of one worker come in rising order.
function _M.push(line, ticket)
  line.last = line.last + 1
  line.places[line.last] = ticket
  line.size = line.size + 1
end

--- The first ticket, or 0.
function _M.head(line)
  return line.size > 0 and line.places[line.first] or 0
end

--- The place of a ticket in `places` by halving, or nil. Places of those who left hold the negated ticket.
local function find(line, ticket)
  local places, low, high = line.places, line.first, line.last
  while low <= high do
    local middle = low + (high - low - (high - low) % 2) / 2
    local there = places[middle]
    if there == ticket then
      return middle
    elseif (there < 0 and -there or there) < ticket then
      low = middle + 1
    else
      high = middle - 1
    end
  end
  return nil
end

--- Takes a ticket out of the line, wherever it stands.
-- @return boolean whether it was there
function _M.remove(line, ticket)
  local at = find(line, ticket)
  if not at then
    return false
  end
  local places = line.places
  places[at] = -ticket
  line.size = line.size - 1
  while line.first <= line.last and places[line.first] < 0 do
    places[line.first] = nil
    line.first = line.first + 1
  end
  if line.size == 0 then
    line.first, line.last = 1, 0
  end
  return true
end

return _M
