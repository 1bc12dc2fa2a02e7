--- Whether Redis answers, as the polls find. Each reason is told once in an outage; what was said is in the shared
-- dict, so that the next poller need not say it again.
local metrics = require "tokenweir.metrics"

local dict = ngx.shared.tokenweir_documents
local type = type

local MOST_SAID = 2000      -- characters of reasons that are told in one outage
local MOST_REFUSALS = 16    -- error replies that are told
local FORGET_POLLS = 100    -- without an error reply: some commands are asked only now and then

local _M = {}

local told, last_refusal = {}, 0  -- error replies that were told; the poll in which the last one came

--- It answered.
function _M.answers()
  if dict:get("redis:said") ~= "" then
    ngx.log(ngx.NOTICE, "tokenweir: Redis answers")
    dict:set("redis:said", "")
  end
  dict:set("redis:up", 1)
end

--- It did not, or by errors alone.
function _M.away(why)
  local said = dict:get("redis:said") or ""
  if not said:find("\n" .. why .. "\n", 1, true) and #said < MOST_SAID then
    ngx.log(ngx.ERR, "tokenweir: Redis does not answer, going on with what is known: ", why)
    dict:set("redis:said", said .. "\n" .. why .. "\n")
  end
  dict:set("redis:up", 0)
end

--- @return boolean whether it answered the last time
function _M.is_up()
  return dict:get("redis:up") == 1
end

--- @return string or nil, why a command was refused
function _M.refusal(reply)
  return type(reply) == "table" and reply.err or nil
end

--- Tells an error reply (a missing permission, say) once, not ten times a second, until none came for a while.
-- @param poll number of this poll
-- @return the first refusal, or nil; whether there was nothing else
function _M.look_for_refusals(replies, poll)
  local first
  local count = 0
  for k = 1, #replies do
    local err = _M.refusal(replies[k])
    count = count + (err and 1 or 0)
    if err and not first then
      first, last_refusal = err, poll
      metrics.add("redis_errors", 1)
    end
    if err and not told[err] and #told < MOST_REFUSALS then
      told[err], told[#told + 1] = true, err
      ngx.log(ngx.ERR, "tokenweir: Redis refused a command: ", err)
    end
  end
  if poll - last_refusal > FORGET_POLLS and #told > 0 then
    told = {}
  end
  return first, count == #replies
end

return _M
