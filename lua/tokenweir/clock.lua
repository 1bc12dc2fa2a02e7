--- Milliseconds of CLOCK_MONOTONIC: the one clock of every worker on a host.
-- Wall time jumps and differs between processes only by adjustment; this one does neither.
local ffi = require "ffi"

local tonumber = tonumber

ffi.cdef [[
typedef struct { long sec; long nsec; } tw_timespec;
int clock_gettime(int clock, tw_timespec *at);
]]

local clock_gettime = ffi.C.clock_gettime
local CLOCK_MONOTONIC = 1
local at = ffi.new("tw_timespec")

local _M = {}

--- @return number milliseconds, with fractions
function _M.ms()
  clock_gettime(CLOCK_MONOTONIC, at)
  return tonumber(at.sec) * 1000 + tonumber(at.nsec) / 1e6
end

return _M
