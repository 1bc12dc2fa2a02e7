--- How long a request may wait: its class's bound, and what its client says in X-Max-Wait.
local errors = require "tokenweir.errors"
local variable = require("tokenweir.variable").get

local match = string.match
local min = math.min
local tonumber = tonumber

local UNITS = { [""] = 1000, s = 1000, ms = 1 }

local _M = {}

--- @param text string, of X-Max-Wait: `5`, `2.5s`, `800ms`
-- @return ms; or nil: it says nothing that is understood
function _M.parse(text)
  local number, unit = match(text, "^%s*(%d+%.?%d*)%s*(%a*)%s*$")
  local scale = number and UNITS[unit]
  return scale and tonumber(number) * scale or nil
end

--- @param queue table, `known.queue`
-- @return ms; a header that is not understood ends the request
function _M.of(r, queue)
  local most = queue.classes[r.priority].max_wait_ms or queue.max_wait_ms
  local asked = variable("http_x_max_wait")
  if not asked then
    return most
  end
  local ms = _M.parse(asked)
  if not ms then
    return errors.send(400, "invalid_max_wait",
      "X-Max-Wait must be a number of seconds, or a number with a unit like 2.5s or 800ms.")
  end
  return (min(most, ms))
end

return _M
