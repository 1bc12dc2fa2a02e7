--- Whose turn it is: the first in the order over all workers, or one that may pass it.
local front = require "tokenweir.core.queue.front"
local gateways = require "tokenweir.core.queue.gateways"

local lowest, show, tell = front.lowest, front.show, front.tell
local yields = gateways.yields

--- With nothing released, room may still come: predictions are met, telemetry changes.
local AGAIN_MS = 10
--- A worker that has not looked for so long is probably dead.
local DEAD_MS = 100
--- One that lives and has not looked for so long is stopped, or held up: the others do not wait for it.
local ASLEEP_MS = 1000

local _M = { DEAD_MS = DEAD_MS, ASLEEP_MS = ASLEEP_MS }

-- What of other workers stands before a place in the order: how many, whether all of them were tried since the last
-- release, and the line of the very first, nil where that waits here.
local function others(q, key, tide, now)
  local lines = q.lines
  local count, tried, lead, lead_key = 0, true, nil, q.own.first[0]
  for k = 1, q.count do
    local row = lines[k]
    local shown, unseen = row.shown, now - row.looked
    if shown > 0 and unseen > ASLEEP_MS then
      shown, q.stuck = 0, true
    end
    for j = 0, shown - 1 do
      local there = row.first[j]
      if there >= key then
        break
      end
      count = count + 1
      if row.blocked[j] ~= tide then
        tried = false
        if unseen > DEAD_MS then
          q.stuck = true
        end
      end
      if j == 0 and there < lead_key then
        lead, lead_key = row, there
      end
    end
  end
  return count, tried, lead
end

local function is_due(w, tide, now)
  return w.blocked ~= tide or now - w.tried >= AGAIN_MS
end

-- The first in the order, which waits here.
local function try_first(q, w, now, tide, try, hold)
  if w.since ~= 0 and not is_due(w, tide, now) then
    return nil
  end
  local found = try(w, nil)
  if found then
    return found
  end
  w.blocked, w.tried = tide, now
  if w.since == 0 then
    w.since = now
  elseif now - w.since > q.settings.pass_ms then
    local kept = hold and hold(w, w.hold > 0 and w.hold - 1 or nil)
    w.hold = kept and kept + 1 or 0
  end
  return nil
end

-- One behind it.
-- @param since when the first was found to be blocked, ms; @param held place + 1 that is held for it, or 0
local function try_behind(q, w, now, tide, try, since, held)
  if not is_due(w, tide, now) then
    return nil
  end
  local apart = held > 0 and now - since > q.settings.pass_ms and held - 1 or nil
  local found = try(w, apart, tide)
  w.blocked, w.tried = tide, now
  return found
end

--- Finds the one of this worker's waiters that gets a place now.
-- @return the waiter and what `try` returned; or nil
function _M.find(q, now, tide, try, hold)
  local own, window = q.own, q.window
  own.looked, q.stuck = now, false
  local shown = show(q)
  if q.shared.peer_at ~= 0 and yields(q.shared, lowest(q), window[1].cost, now, tide) then
    return nil
  end
  for k = 1, shown do
    local w = window[k]
    local count, tried, lead = others(q, own.first[k - 1], tide, now)
    if not tried or count + k - 1 > q.settings.window then
      break
    end
    local found
    if k == 1 and not lead then
      found = try_first(q, w, now, tide, try, hold)
    else
      local since, held = window[1].since, window[1].hold
      if lead then
        since, held = lead.since, lead.hold
      end
      if since == 0 then
        -- It has just become the first, and what it was tried with before may have been less than it may have now.
        break
      end
      found = try_behind(q, w, now, tide, try, since, held)
    end
    if found then
      return w, found
    end
  end
  tell(q)
  return nil
end

return _M
