--- How a request is served otherwise than asked: what X-Tokenweir-Degraded and the completion record say.
local _M = {}

--- @return string, or nil where it is served as asked
function _M.as(r)
  if r.burst then
    return r.fallback and "burst, fallback-model" or "burst"
  end
  return r.fallback and "fallback-model" or nil
end

return _M
