--- Measures of the shipped ring (`core/sessions/ring.lua`).
local ffi = require "ffi"
local ring = require "tokenweir.core.sessions.ring"

local SLICE = 40000

local function names_of(size)
  local names = {}
  for k = 1, size do
    names[k] = "gpu-" .. k
  end
  return names
end

local function weights_of(size, heavy)
  local weights, sum = ffi.new("double[?]", size + 1), 0
  for k = 1, size do
    weights[k] = k % 3 == 0 and heavy or 1
    sum = sum + weights[k]
  end
  return weights, sum
end

local function position(k)
  return ring.position(k * 40503 % 2147483647, k)
end

local _M = {}

--- The worst relative error of a member's share of so many sessions; every third weighs `heavy`.
function _M.share_error(size, count, heavy)
  local made = ring.build(names_of(size), size)
  local weights, sum = weights_of(size, heavy)
  local shares = ffi.new("double[?]", size + 1)
  for k = 1, count do
    local m = ring.find(made, position(k), weights, heavy)
    shares[m] = shares[m] + 1
  end
  local worst = 0
  for m = 1, size do
    worst = math.max(worst, math.abs(shares[m] / count * sum / weights[m] - 1))
  end
  return worst
end

--- Of so many sessions those that moved although their backend stayed and the new one is not theirs, when one backend
-- goes (`change` -1) or comes (1).
function _M.moved_needlessly(size, count, change)
  local before, after = names_of(size), names_of(size + change)
  local one, other = ring.build(before, size), ring.build(after, size + change)
  local weights = weights_of(size + 1, 1)
  local moved = 0
  for k = 1, count do
    local x = position(k)
    local old, new = ring.find(one, x, weights, 1), ring.find(other, x, weights, 1)
    if old ~= new and old <= size + change and new <= size then
      moved = moved + 1
    end
  end
  return moved
end

--- ms of CPU to build a ring, and of the longest slice as the gateway's timer makes them.
function _M.build_ms(size)
  local names, clock = names_of(size), os.clock
  ring.build(names, size)
  local began = clock()
  ring.build(names, size)
  local whole, longest = clock() - began, 0
  local build, made = ring.begin(names, size), nil
  repeat
    local at = clock()
    made = ring.step(build, SLICE)
    longest = math.max(longest, clock() - at)
  until made
  return whole * 1000, longest * 1000
end

return _M
