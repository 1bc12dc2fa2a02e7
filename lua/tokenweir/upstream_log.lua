--- What nginx's variables tell of the last attempt of a request. They list one value per attempt: "0, 245", "0 : 17",
-- "-" where there is none.
local variable = require("tokenweir.variable").get
local match = string.match
local tonumber = tonumber

local _M = {}

--- @return number of bytes of the request that the last backend was sent
function _M.sent()
  local value = variable("upstream_bytes_sent")
  return value and tonumber(match(value, "(%d+)[^%d]*$")) or 0
end

--- Whether the last backend's answer had begun.
function _M.answered()
  local value = variable("upstream_header_time")
  return value ~= nil and match(value, "%d$") ~= nil
end

--- Whether nginx is done with the last backend.
function _M.over()
  local value = variable("upstream_response_time")
  return value ~= nil and match(value, "%d$") ~= nil
end

return _M
