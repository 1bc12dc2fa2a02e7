--- Power-of-two buckets of the tokens that a sequence has still to produce.
-- Bucket b (0 .. COUNT - 1) holds remaining tokens in (upper[b - 1], upper[b]]: up to 8, 16, 32, ... 32,768;
-- the last one is open: it also holds whatever is longer.
local ffi = require "ffi"

local COUNT = 13
local FIRST_UPPER = 8

local _M = {
  COUNT = COUNT,
  LAST = COUNT - 1,
  --- double[COUNT]: the most remaining tokens of each bucket (of the last: where it would end).
  upper = ffi.new("double[?]", COUNT),
  --- double[COUNT]: the fewest remaining tokens of each bucket.
  lower = ffi.new("double[?]", COUNT),
}

local upper, lower = _M.upper, _M.lower

for b = 0, COUNT - 1 do
  upper[b] = FIRST_UPPER * 2 ^ b
  lower[b] = b == 0 and 0 or upper[b - 1] + 1
end

--- The bucket of so many remaining tokens.
-- @param remaining tokens, >= 0
-- @param from where to start looking: the bucket it was in (remaining tokens change little at a time)
-- @return number 0 .. COUNT - 1
function _M.of(remaining, from)
  local b = from or 0
  while b < COUNT - 1 and remaining > upper[b] do
    b = b + 1
  end
  while b > 0 and remaining < lower[b] do
    b = b - 1
  end
  return b
end

return _M
