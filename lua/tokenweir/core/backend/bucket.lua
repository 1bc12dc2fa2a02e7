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

--- The bucket of so many remaining tokens. By halving and without a loop, which would keep its callers out of compiled
-- code: they run on every request.
-- @param remaining whole tokens, >= 0
-- @return number 0 .. COUNT - 1
function _M.of(remaining)
  if remaining <= 256 then
    if remaining <= 32 then
      if remaining <= 8 then
        return 0
      end
      return remaining <= 16 and 1 or 2
    elseif remaining <= 64 then
      return 3
    end
    return remaining <= 128 and 4 or 5
  elseif remaining <= 2048 then
    if remaining <= 512 then
      return 6
    end
    return remaining <= 1024 and 7 or 8
  elseif remaining <= 8192 then
    return remaining <= 4096 and 9 or 10
  end
  return remaining <= 16384 and 11 or 12
end

return _M
