--- What is made once whenever a document was applied, so that the path of a request only looks it up.
local affinity = require "tokenweir.affinity"
local auth = require "tokenweir.auth"
local clock = require "tokenweir.clock"
local limits = require "tokenweir.limits"
local models = require "tokenweir.models"
local quarantine = require "tokenweir.quarantine"
local state = require "tokenweir.state"
local targets = require "tokenweir.targets"

local _M = {}

--- Follows the documents; in init_worker, before the first is applied.
function _M.follow()
  state.on_change(function(name, known)
    if name == "settings" then
      auth.prepare(known.settings)
    end
    if known.fleet and name ~= "stats" then
      targets.prepare(known.fleet)
      models.prepare(known.fleet)
      if known.settings then
        affinity.follow(known)
      end
    end
    if name == "snapshot" then
      quarantine.follow(known.fleet, known.settings)
    end
  end)
  limits.publish(function()
    return state.current(clock.ms()).settings
  end)
end

return _M
