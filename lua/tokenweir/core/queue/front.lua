--- The front of a queue: the first of this worker's waiters in order, as the others see them.
local line = require "tokenweir.core.queue.line"
local memory = require "tokenweir.core.queue.memory"
local tags = require "tokenweir.core.queue.tags"

local at, owed = line.at, tags.owed
local huge = math.huge

local LAST_CLASS, WINDOW = memory.LAST_CLASS, memory.WINDOW

--- What is owed a turn stands before everything else; tags never come near this.
local FIRST = -1e14

local _M = {}

--- @return number work that went to backends, from all workers
function _M.served(q)
  local sum, lines = q.shared.served + q.own.served, q.lines
  for k = 1, q.count do
    sum = sum + lines[k].served
  end
  return sum
end

--- @param class number or nil: of all classes
-- @return number of waiters, of all workers; the time when the one that waits longest came, 0: nobody waits
function _M.waiting(q, class)
  local count, oldest = 0, 0
  for k = 0, q.count do
    local row = k == 0 and q.own or q.lines[k]
    for c = class or 0, class or LAST_CLASS do
      local since = row.oldest[c]
      count = count + row.count[c]
      if since ~= 0 and (oldest == 0 or since < oldest) then
        oldest = since
      end
    end
  end
  return count, oldest
end

-- Whether the one of its class that is owed the turn waits in another worker.
local function is_elsewhere(q, c, w)
  local lines = q.lines
  for k = 1, q.count do
    local row = lines[k]
    if row.count[c] > 0 then
      if q.by_score and row.oldest[c] < w.came or not q.by_score and row.first_of[c] < w.key then
        return true
      end
    end
  end
  return false
end

-- Puts those at the front whose class is owed a turn: one of a class, in the order of their keys.
local function put_owed(q)
  local own, window, n = q.own, q.window, 0
  local sum
  for c = 0, LAST_CLASS do
    local floor = q.floors[c]
    if floor > 0 and q.order[c].size > 0 then
      sum = sum or _M.served(q)
      if owed(q.shared, c, floor, sum) then
        -- By score long outputs would wait for ever: there the oldest has the turn.
        local w = at(q.by_score and q.ages[c] or q.order[c], 1)
        if not is_elsewhere(q, c, w) then
          local k = n
          while k > 0 and own.first[k - 1] > FIRST + w.key do
            own.first[k], window[k + 1] = own.first[k - 1], window[k]
            k = k - 1
          end
          own.first[k], window[k + 1] = FIRST + w.key, w
          n = n + 1
        end
      end
    end
  end
  return n
end

-- Adds the others: the classes' orders, merged.
local function put_rest(q, n)
  local own, window, cursors = q.own, q.window, q.cursors
  local owing = n
  cursors[0], cursors[1], cursors[2] = 1, 1, 1
  while n < WINDOW do
    local best, least = nil, huge
    local from
    for c = 0, LAST_CLASS do
      local w, key = at(q.order[c], cursors[c])
      if w and (not best or key < least) then
        best, least, from = w, key, c
      end
    end
    if not best then
      return n
    end
    cursors[from] = cursors[from] + 1
    local is_owed = false
    for k = 1, owing do
      is_owed = is_owed or window[k] == best
    end
    if not is_owed then
      n = n + 1
      own.first[n - 1], window[n] = least, best
    end
  end
  return n
end

--- The lowest place in the order of all workers' waiters.
function _M.lowest(q)
  local least, lines = q.own.lowest, q.lines
  for k = 1, q.count do
    local row = lines[k]
    if row.shown > 0 and row.lowest < least then
      least = row.lowest
    end
  end
  return least
end

--- Writes what the others see of each of the front's waiters beside its place.
function _M.tell(q)
  local own, window, n = q.own, q.window, q.own.shown
  for k = 1, n do
    own.blocked[k - 1] = window[k].blocked
  end
  local first = window[1]
  own.since, own.hold = n > 0 and first.since or 0, n > 0 and first.hold or 0
end

--- Puts the front together, for this worker (`q.window`) and for the others.
-- @return number of waiters in it
function _M.show(q)
  local own, window = q.own, q.window
  local before = own.shown
  local n = put_rest(q, q.settings.order ~= "fifo" and put_owed(q) or 0)
  local lowest = huge
  for c = 0, LAST_CLASS do
    local _, key = at(q.order[c], 1)
    own.first_of[c] = key or huge
    if key and key < lowest then
      lowest = key
    end
  end
  own.lowest, own.shown = lowest, n
  for k = n + 1, before do
    window[k] = nil
  end
  _M.tell(q)
  return n
end

return _M
