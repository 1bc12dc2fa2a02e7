--- The wall clock of Redis, by which all gateways measure what one tells the others: their own may be wrong, and jump.
-- It is read now and then, and goes on by the monotonic clock in between.
local ngx = ngx
local dict = ngx.shared.tokenweir_documents
local tonumber, type = tonumber, type

local AHEAD = "redis:ahead"     -- ms, of the monotonic clock

local _M = {}

local refused = false

--- What is to be asked, or nil where that is not permitted.
function _M.question()
  return not refused and { "TIME" } or nil
end

--- Takes the answer.
function _M.take(reply, now)
  local seconds = type(reply) == "table" and tonumber(reply[1])
  local microseconds = seconds and tonumber(reply[2])
  if microseconds then
    dict:set(AHEAD, seconds * 1000 + microseconds / 1000 - now)
  elseif type(reply) == "table" and reply.err then
    refused = true
  end
end

--- @param now ms of the monotonic clock
-- @return number ms since 1970; by this host's clock as long as Redis has not been asked
function _M.ms(now)
  local ahead = dict:get(AHEAD)
  return ahead and now + ahead or ngx.now() * 1000
end

return _M
