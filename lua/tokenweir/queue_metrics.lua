--- What the queue counts of itself: waits, how fast it wakes, how good its estimates were, whom it refused.
local metrics = require "tokenweir.metrics"

local add, observe = metrics.add, metrics.observe
local max = math.max

local _M = {}

--- A waiter was given a place.
-- @param tide of releases; @param released_at when the last of them was, ms
function _M.served(w, now, tide, released_at)
  local model, waited = w.request.model, now - w.came
  observe("queue_wait", waited / 1000, model, w.priority)
  -- It had been tried in vain, and a place was given back since.
  if w.blocked >= 0 and tide == tide and w.blocked ~= tide then
    observe("queue_wake", max(0, now - released_at) / 1000, model)
  end
  if w.estimate and w.estimate > 0 then
    observe("queue_estimate_ratio", waited / w.estimate, model, w.priority)
  end
end

--- A request was refused.
function _M.turned_away(r, why)
  add("queue_refusals", 1, r.model, why)
end

return _M
