--- Whether Redis answers, as the polls find. Each reason is told once in an outage; what was said is in the shared
-- dict, so that the next poller need not say it again.
local metrics = require "tokenweir.metrics"

local dict = ngx.shared.tokenweir_documents
local type = type

local MOST_SAID = 2000      -- characters of reasons that are told in one outage
local FORGET_S = 10         -- after which an error reply is told again: some commands are asked only now and then

local _M = {}

-- Whether a reason is to be told: those that were stand in `said`, each in a line.
local function is_new(said, why)
  return not said:find("\n" .. why .. "\n", 1, true) and #said < MOST_SAID
end

local function with(said, why)
  return said .. "\n" .. why .. "\n"
end

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
  if is_new(said, why) then
    ngx.log(ngx.ERR, "tokenweir: Redis does not answer, going on with what is known: ", why)
    dict:set("redis:said", with(said, why))
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
-- @return the first refusal, or nil; whether there was nothing else
function _M.look_for_refusals(replies)
  local first
  local count = 0
  local said
  for k = 1, #replies do
    local err = _M.refusal(replies[k])
    if err then
      count, first = count + 1, first or err
      said = said or dict:get("redis:refused") or ""
      if is_new(said, err) then
        said = with(said, err)
        ngx.log(ngx.ERR, "tokenweir: Redis refused a command: ", err)
      end
    end
  end
  if first then
    metrics.add("redis_errors", 1)
    dict:set("redis:refused", said, FORGET_S)
  end
  return first, count == #replies
end

return _M
