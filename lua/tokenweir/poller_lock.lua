--- Which worker of a gateway polls Redis. The lock holds a deadline on the monotonic clock, since a dict's own expiry
-- follows wall time, which may jump.
local dict = ngx.shared.tokenweir_documents
local floor = math.floor

--- A poller that says nothing for so long is replaced.
local HOLD_MS = 1000

local _M = {}

local identity  -- of this worker

--- Takes the lock, or holds it for longer.
-- @return boolean whether this worker has it
function _M.hold(now)
  identity = identity or ngx.worker.pid() .. ":" .. floor(now)
  local holder, until_ms = dict:get("poller"), dict:get("poller:until")
  if holder ~= identity and holder and until_ms and now < until_ms and until_ms - now <= HOLD_MS then
    return false
  end
  -- Of workers that start at the same moment only one can add what is not there.
  if not holder and not dict:add("poller", identity) then
    return false
  end
  dict:set("poller", identity)
  dict:set("poller:until", now + HOLD_MS)
  return dict:get("poller") == identity
end

--- @return boolean whether this worker has it
function _M.is_held()
  return identity ~= nil and dict:get("poller") == identity
end

--- Lets another worker take it at once.
function _M.release()
  if _M.is_held() then
    dict:delete("poller")
  end
end

return _M
