--- Which bucket of a histogram a value falls into.
local ffi = require "ffi"

local huge = math.huge

--- Buckets with an upper bound, at most.
local MOST = 15

local _M = { MOST = MOST }

--- @tparam table list upper bounds, rising, at most MOST
-- @return FFI array for `bucket`
function _M.bounds(list)
  assert(#list <= MOST, "too many buckets")
  local upper = ffi.new("double[?]", MOST + 1)
  for k = 0, MOST do
    upper[k] = list[k + 1] or huge
  end
  return upper
end

--- By halving and without a loop, which would keep the log phase out of compiled code.
-- @param upper of `bounds`
-- @treturn number of bounds below the value: the bucket, counted from 0
function _M.bucket(upper, value)
  local k = value > upper[7] and 8 or 0
  k = value > upper[k + 3] and k + 4 or k
  k = value > upper[k + 1] and k + 2 or k
  return value > upper[k] and k + 1 or k
end

return _M
