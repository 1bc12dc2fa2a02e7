--- Ends requests that waited in vain or need not begin to: the status, when to come again, and where they stood.
local deadline = require "tokenweir.deadline"
local errors = require "tokenweir.errors"
local queues = require "tokenweir.queues"
local queue_metrics = require "tokenweir.queue_metrics"

local format = string.format
local huge, max, min = math.huge, math.max, math.min

--- Told where nothing is known of the rate.
local RETRY_AFTER_S = 5

local MESSAGES = {
  queue_full = "Every backend that could serve this request is full, and so is the queue "
    .. "(it would be number %d, %d wait).",
  max_wait = "Every backend that could serve this request is full, and it would wait for longer than it may "
    .. "(position %d of %d; queue.max_wait, or the request's X-Max-Wait).",
}
local OF_DEADLINE = {
  deadline = "Every backend that could serve this request is full, and it could not be served before its deadline "
    .. "of %s; position %d of %d.",
  deadline_exceeded = "The request waited for a backend until its deadline of %s; position %d of %d.",
}

local _M = {}

--- What one that waits could expect at this moment.
function _M.expectation(w, now)
  local position, _, _, whole, waiting = queues.expect(w, now)
  return { position = position, ms = whole, waiting = max(position, waiting), reason = w.reason }
end

--- ms that the fastest backend would take over a request.
function _M.shortest(known, r)
  local least, pool = huge, r.pool
  for k = 1, pool.size do
    local target = known.fleet.target[pool[k]]
    least = min(least, target.prefill * r.prompt + target.step * r.mean)
  end
  return least
end

local function members(why, told)
  local ms = told.ms and format("%.0f", told.ms) or "null"
  return format('"reason":"%s","position":%d,"waiting":%d,"estimated_wait_ms":%s', why, told.position, told.waiting, ms)
end

--- What is said where none of a request's backends can be reached.
local function nobody(r)
  local variant = r.precision and " that holds the precision '" .. r.precision .. "'" or ""
  return "No backend of model '" .. errors.echo(r.model) .. "'" .. variant .. " can be reached now."
end

--- Ends a request that did not begin to wait, as there is no backend to wait for.
-- @param seconds when to come again
function _M.unreachable(r, seconds)
  return errors.send(503, "no_capacity", nobody(r), nil, seconds, '"reason":"no_capacity"')
end

--- Ends the request.
-- @param why string: a key of MESSAGES or OF_DEADLINE, or "no_capacity" where there is no backend to wait for
-- @param told what `expectation` returned
function _M.send(r, why, told)
  queue_metrics.turned_away(r, why)
  if why == "queue_full" then
    told.waiting = told.waiting - 1  -- it was not let in
  end
  local seconds = max(1, told.ms and told.ms / 1000 or RETRY_AFTER_S)
  if told.reason ~= "full" and why ~= "deadline_exceeded" then
    return errors.send(503, "no_capacity", nobody(r), nil, seconds, members("no_capacity", told))
  end
  local text = OF_DEADLINE[why] and format(OF_DEADLINE[why], deadline.describe(r), told.position, told.waiting)
    or format(MESSAGES[why], told.position, told.waiting)
  if why == "deadline_exceeded" then
    return errors.send(504, "deadline_exceeded", text, nil, nil, members(why, told))
  end
  return errors.send(429, "overloaded", text .. " Try again later.", nil, seconds, members(why, told))
end

return _M
