--- What a waiter may expect: its position, and how long it will probably wait.
--
-- Exact for what waits in the same worker. Of the others' waiters some places in the order are known, the marks, with
-- the number and the work of those before; between two marks they are taken to be spread evenly.
local front = require "tokenweir.core.queue.front"
local line = require "tokenweir.core.queue.line"
local memory = require "tokenweir.core.queue.memory"
local wait = require "tokenweir.core.queue.wait"

local before = line.before
local floor, huge, max, min = math.floor, math.huge, math.max, math.min

local CLASS, LAST_CLASS, MARKS = memory.CLASS, memory.LAST_CLASS, memory.MARKS

--- So few are marked anew whenever one comes or goes; more, a few times a second.
local FEW = 32

local _M = {}

local function mark(own, c, order)
  local size, keys, works = order.size, order.keys, order.works
  local marks, work = 0, 0
  for k = 0, size - 1 do
    work = work + works[k]
    -- The first, the last, and those that divide what is between them.
    if k == size - 1 or k >= marks * (size - 1) / (MARKS - 1) then
      own.mark_key[c][marks], own.mark_count[c][marks], own.mark_work[c][marks] = keys[k], k + 1, work
      marks = marks + 1
    end
  end
  own.marks[c] = marks
end

--- One of a class has come or gone.
function _M.update(q, c)
  if q.order[c].size <= FEW then
    mark(q.own, c, q.order[c])
  end
end

--- Marks this worker's waiters, and measures the rate.
function _M.measure(q, now)
  if wait.is_due(q.shared, now) then
    wait.sample(q.shared, front.served(q), now)
  end
  for c = 0, LAST_CLASS do
    mark(q.own, c, q.order[c])
  end
end

-- Number and work of another worker's waiters of a class before a place in the order.
local function marked(row, c, key)
  local count, work, from = 0, 0, nil
  for j = 0, row.marks[c] - 1 do
    local there = row.mark_key[c][j]
    if there >= key then
      local share = from and (key - from) / (there - from) or 0
      return count + share * (row.mark_count[c][j] - 1 - count), work + share * (row.mark_work[c][j] - work)
    end
    count, work, from = row.mark_count[c][j], row.mark_work[c][j], there
  end
  return count, work
end

--- @return number of those before w; their work; the work of those of its class
local function ahead(q, w)
  local count, work, same = 0, 0, 0
  for c = 0, LAST_CLASS do
    local n, sum = before(q.order[c], w.key)
    for k = 1, q.count do
      local more, more_work = marked(q.lines[k], c, w.key)
      n, sum = n + more, sum + more_work
    end
    count, work = count + n, work + sum
    if c == CLASS[w.priority] then
      same = sum
    end
  end
  return floor(count + 0.5), work, same
end

--- See `init.lua`.
function _M.of(q, w, now)
  local count, work, same = ahead(q, w)
  w.ahead = work
  local raw = wait.raw(q.shared, work + w.work, w.tag)
  if not raw then
    return count + 1, nil, nil, nil
  end
  if not w.raw and wait.is_measured(q.shared) then
    w.raw, w.raw_at = raw, now  -- to be compared with what comes true
  end
  local class = CLASS[w.priority]
  local told, middle = wait.told(q.shared, raw), raw * wait.factor(q.shared, raw)
  local share, most = q.floors[class], nil
  if q.settings.order ~= "fifo" and share > 0 then
    most = max(raw, wait.raw(q.shared, (same + w.work) / share))
    told, middle = min(told, most), min(middle, most)
  end
  -- If it is served at all, then before its time is over: those of its flow who stand before it and have no more time
  -- than it give up meanwhile, though their work is reckoned.
  local left = w.until_ms and max(0, w.until_ms - now) or huge
  return count + 1, min(told, left), w.priority == "low" and most and min(most, left) or nil, middle
end

return _M
