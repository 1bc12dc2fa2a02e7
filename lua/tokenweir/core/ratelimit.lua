--- Requests or tokens per minute, from the counts of two fixed windows: a sliding estimate that needs two numbers
-- per key. The last minute is taken to hold all of the current window and the part of the previous one that it
-- still covers, as if that had come evenly. Pure: the caller keeps the counts; all gateways that share a limit
-- must cut windows by the same clock.
local floor, ceil, max = math.floor, math.ceil, math.max

local WINDOW_MS = 60000

local _M = { WINDOW_MS = WINDOW_MS }

--- @param now ms
-- @return number of the window, and how far it has run: 0 .. 1
local function window(now)
  local at = now / WINDOW_MS
  local number = floor(at)
  return number, at - number
end
_M.window = window

--- Use of the last minute.
-- @param previous, current counts of the two windows; @param run see `window`
local function estimate(previous, current, run)
  return previous * (1 - run) + current
end
_M.estimate = estimate

--- ms until `cost` more fits if nothing else comes: within this window as the previous one slides out, else in the
-- next as this one does.
local function wait_ms(limit, previous, current, run, cost)
  local space = limit - cost
  if current <= space then
    return (1 - (space - current) / previous - run) * WINDOW_MS
  end
  return ((1 - run) + (1 - space / current)) * WINDOW_MS
end

-- ms until all that was used is forgotten, if nothing else comes.
local function reset_of(previous, current, run)
  if current > 0 then
    return (2 - run) * WINDOW_MS
  end
  return previous > 0 and (1 - run) * WINDOW_MS or 0
end

--- Whether `cost` more is within the limit now. Counting it is the caller's.
-- @param limit per minute, > 0; @param cost requests or tokens, >= 0
-- @return allowed (boolean), remaining (whole) and reset_ms (until all that was used is forgotten), both with this cost
--   where it is allowed; retry_ms (0 where allowed; nil where the cost exceeds the limit and no waiting helps)
function _M.check(limit, previous, current, now, cost)
  local _, run = window(now)
  local used = estimate(previous, current, run)
  if used + cost <= limit then
    return true, floor(limit - used - cost), reset_of(previous, current + cost, run), 0
  end
  local remaining, reset_ms = max(0, floor(limit - used)), reset_of(previous, current, run)
  if cost > limit then
    return false, remaining, reset_ms, nil
  end
  return false, remaining, reset_ms, max(1, ceil(wait_ms(limit, previous, current, run, cost)))
end

return _M
