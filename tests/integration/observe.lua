-- Tells the tests which documents each worker has applied, and how often it has looked for new keys of backends.
local credentials = require "tokenweir.credentials"
local state = require "tokenweir.state"

local dict = ngx.shared.test_applied

local _M = {}

--- In init_worker_by_lua, before Tokenweir's own start.
function _M.start()
  state.on_change(function(name, known)
    local number
    if name == "snapshot" then
      number = known.sequence
    elseif name == "predictor_model" then
      number = known.predictor.version
    else
      number = known[name].version
    end
    dict:set(ngx.worker.pid() .. " " .. name, number)
  end)
  local refresh = credentials.refresh
  credentials.refresh = function()
    local changed = refresh()
    dict:incr(ngx.worker.pid() .. " keys", 1, 0)
    return changed
  end
end

--- Lines of worker, document, number.
function _M.serve()
  local keys = dict:get_keys(0)
  for k = 1, #keys do
    ngx.say(keys[k], " ", dict:get(keys[k]))
  end
end

return _M
