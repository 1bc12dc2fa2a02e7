--- A consistent-hash ring: where a session has its place, the same in every worker and on every host.
--
-- Each member has 200 points, wherever its name puts them. A session at `x` goes to the member whose next point,
-- clockwise, is nearest in units of its weight: the least of `distance / weight`. So a member's share is its weight's,
-- and a changed weight, a new member or one that is gone moves only the sessions that come to it or leave it: points
-- never depend on who else is there, as they would if their number did.
--
--     local build = ring.begin(names, count)
--     local made = ring.step(build, 20000)       -- again until it is there
--     local member = ring.find(made, ring.position(a, b), weights, most)
local ffi = require "ffi"
local bit = require "bit"
local hash = require "tokenweir.core.hash"

local bxor, rshift = bit.bxor, bit.rshift
local floor, huge, max, min = math.floor, math.huge, math.max, math.min
local tonumber = tonumber
local hash_string = hash.string

local DOUBLES, INTEGERS = ffi.typeof("double[?]"), ffi.typeof("int32_t[?]")
local u64 = ffi.typeof("uint64_t")

local POINTS = 200
local GOLDEN = 0x9E3779B97F4A7C15ULL
local UNIT = 2 ^ -52
--- The first points stand once more behind the last, one turn on: so many that a slice hardly ever holds more.
local MORE = 4

local _M = { POINTS = POINTS }

-- The finisher of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): every bit of the sum reaches every bit of the result.
local function scatter(z)
  z = bxor(z, rshift(z, 30)) * 0xBF58476D1CE4E5B9ULL
  z = bxor(z, rshift(z, 27)) * 0x94D049BB133111EBULL
  return tonumber(rshift(bxor(z, rshift(z, 31)), 12)) * UNIT
end

--- The place of a session on a ring, in [0, 1).
-- @param a, b the halves of its hash (`session.lua`)
function _M.position(a, b)
  return scatter(u64(a % 4294967296) * 0x100000000ULL + u64(b % 4294967296))
end

--- Begins to build a ring.
-- @param names array of strings, 1 .. count, each once; copied
-- @return table for `step`
function _M.begin(names, count)
  local points = count * POINTS
  local build = {
    names = {}, size = count, points = points, stage = 1, done = 0,
    drawn = DOUBLES(points + 1), owner = INTEGERS(points + 1), first = INTEGERS(points + 2),
    at = DOUBLES(points + MORE), member = INTEGERS(points + MORE),
  }
  for k = 1, count do
    build.names[k] = names[k]
  end
  return build
end

-- Points are spread evenly, so as many slices as there are points hold about one each.
local function draw(build, from, to)
  local drawn, owner, first, points = build.drawn, build.owner, build.first, build.points
  local names = build.names
  local seed, before = 0ULL, 0
  for k = from, to - 1 do
    local m = floor(k / POINTS) + 1
    if m ~= before then
      seed, before = hash_string(names[m]), m
    end
    local x = scatter(seed + u64(k % POINTS + 1) * GOLDEN)
    drawn[k], owner[k] = x, m
    local slice = floor(x * points) + 1
    first[slice] = first[slice] + 1
  end
end

local function add_up(build, from, to)
  local first = build.first
  for k = from, to - 1 do
    first[k + 1] = first[k + 1] + first[k]
  end
end

-- Puts every point behind those of its slice that were put before; `first` then tells where each slice ends.
local function put(build, from, to)
  local drawn, owner, first, points = build.drawn, build.owner, build.first, build.points
  local at, member = build.at, build.member
  for k = from, to - 1 do
    local x = drawn[k]
    local slice = floor(x * points)
    local place = first[slice]
    at[place], member[place] = x, owner[k]
    first[slice] = place + 1
  end
end

-- Two points at one place stand in the order of their members' names, whatever order those were given in.
local function behind(build, x, m, y, n)
  return x > y or x == y and build.names[m] > build.names[n]
end

local function sort(build, from, to)
  local at, member = build.at, build.member
  for k = from > 0 and from or 1, to - 1 do
    local x, m = at[k], member[k]
    local j = k - 1
    while j >= 0 and behind(build, at[j], member[j], x, m) do
      at[j + 1], member[j + 1] = at[j], member[j]
      j = j - 1
    end
    at[j + 1], member[j + 1] = x, m
  end
end

local STAGES = { draw, add_up, put, sort }

--- Goes on with a ring.
-- @param budget number of steps of work; one costs some 20 ns
-- @return the ring { names, size, points }, or nil where there is more to do
function _M.step(build, budget)
  while budget > 0 and build.stage <= #STAGES do
    local from = build.done
    local to = min(build.points, from + budget)
    STAGES[build.stage](build, from, to)
    budget = budget - (to - from) - 1
    build.done = to
    if to == build.points then
      build.stage, build.done = build.stage + 1, 0
    end
  end
  if build.stage <= #STAGES then
    return nil
  end
  for k = 0, MORE - 1 do
    build.at[build.points + k], build.member[build.points + k] = build.at[k] + 1, build.member[k]
  end
  build.drawn, build.owner, build.stage, build.done = nil, nil, nil, nil
  return build
end

--- Builds a ring at once.
function _M.build(names, count)
  return _M.step(_M.begin(names, count), huge)
end

-- 1 where x lies behind the point at `y`, else 0.
local function behind_point(x, y)
  return (max(0, min((x - y) * 2 ^ 60, 1)))
end

-- The first point at or behind x; the first one of the next turn is `points`. How many of its slice lie before it is
-- counted without a loop and a branch: it differs from session to session, and each number would be compiled apart.
local function first_point(ring, x)
  local at, points = ring.at, ring.points
  local slice = floor(x * points)
  local k = slice > 0 and ring.first[slice - 1] or 0
  local before = behind_point(x, at[k]) + behind_point(x, at[k + 1]) + behind_point(x, at[k + 2])
    + behind_point(x, at[k + 3])
  k = k + before
  while before == MORE and k < points and at[k] < x do
    k = k + 1
  end
  return k
end

-- The member of the point that is nearest by its weight, from point k on.
local function nearest(ring, k, x, weights, most, marks, mark)
  local points, at, member = ring.points, ring.at, ring.member
  local best, least, turn = 0, huge, -x
  for _ = 1, points do
    if k == points then
      k, turn = 0, turn + 1
    end
    local distance = at[k] + turn
    if distance >= least * most then
      break
    end
    local m = member[k]
    local weight = weights[m]
    if weight > 0 and (not marks or marks[m] == mark) and distance < least * weight then
      best, least = m, distance / weight
    end
    k = k + 1
  end
  return best
end

--- The member of a place on the ring.
-- @param x in [0, 1)
-- @param weights FFI array of doubles by member, 1 .. size; 0: it takes no part
-- @param most the largest of them
-- @param[opt] marks FFI array of int32 by member: only who bears `mark` takes part
-- @param[opt] mark number
-- @return number of the member, 1 .. size; 0 where nobody takes part
function _M.find(ring, x, weights, most, marks, mark)
  local k = first_point(ring, x)
  local m = ring.member[k]
  if not marks and most > 0 and weights[m] == most then
    return m  -- no point behind it can be nearer
  end
  return nearest(ring, k, x, weights, most, marks, mark)
end

return _M
