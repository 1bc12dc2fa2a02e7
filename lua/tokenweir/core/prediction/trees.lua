--- Sums of regression trees, as gradient boosting makes them, over flat arrays.
--
--     local forest, why = trees.new(nodes, count, root, feature, right, value, features)
--     trees.read(forest, x)                     -- once a vector
--     trees.sum(forest, first, last)            -- what these trees say of it
--
-- As given, the nodes of a tree stand in a row, a node's left child behind it. A node that is no leaf sends a vector to
-- the left where `x[feature] <= value`, else to `right`; a leaf has the feature LEAF and its `value` is what the tree
-- says.
--
-- Which way a vector goes cannot be foreseen, and a wrong guess costs a processor more than three steps down a tree.
-- So nothing branches: floats become whole numbers of the same order, the sign of a difference is the step aside to the
-- right child, and every walk takes as many steps as the deepest tree has (a leaf is its own child). Then walks need
-- not wait for each other either. Both children stand side by side, and the upper levels of a tree in one cache line.
local bit = require "bit"
local ffi = require "ffi"
local fixed_array = require "tokenweir.core.fixed_array"

local arshift, band, bxor, rshift, tobit = bit.arshift, bit.band, bit.bxor, bit.rshift, bit.tobit
local copy, ffi_new = ffi.copy, ffi.new
local max, min = math.max, math.min

local _M = {}

--- Marks a leaf.
_M.LEAF = 255
local LEAF = _M.LEAF
local MOST_FEATURES = 128
-- What leaves are asked for: 0, so that the sign of their value is the step.
local NOTHING = MOST_FEATURES

ffi.cdef "typedef struct { union { int32_t cut; float value; }; uint16_t child, feature; } tw_tree_node;"

-- The vector's bits, and its whole numbers.
local bits, numbers = fixed_array.new("int32_t", MOST_FEATURES), fixed_array.new("int32_t", MOST_FEATURES + 1)

-- Bits of 2^-80 and of 2^32. What is nearer to 0 counts as 0, what is farther as 2^32, so that no difference of two
-- numbers leaves 32 bits.
local LEAST, MOST = 0x17800000, 0x4F800000

-- The whole number for the bits of a float.
local function number_of(b)
  local sign = arshift(b, 31)
  return (tobit(bxor(max(LEAST, min(band(b, 0x7FFFFFFF), MOST)) - LEAST, sign) - sign))
end

local one = ffi_new("union { float value; int32_t bits; }")

-- The number of the greatest float that is not above a value.
local function cut_of(value)
  one.value = value
  local b = one.bits
  if one.value > value then
    b = b > 0 and b - 1 or b == 0 and tobit(0x80000001) or b + 1
  end
  return number_of(b)
end

--- Takes a vector.
-- @param forest of `new`
-- @param x const float *, as many as the forest's features
function _M.read(forest, x)
  local used = forest.used
  copy(bits, x, forest.bytes)
  for k = 0, forest.used_count - 1 do
    local f = used[k]
    numbers[f] = number_of(bits[f])
  end
end

local function step(node, k)
  local at = node[k]
  return (tobit(at.child + rshift(at.cut - numbers[at.feature], 31)))
end

--- What the trees of an ensemble say of the vector that was read last, added up.
-- @param forest of `new`
-- @tparam number first, last the ensemble's trees
-- @treturn number
function _M.sum(forest, first, last)
  local root, node, depth = forest.root, forest.node, forest.depth
  local sum = 0
  for t = first, last do
    -- Six levels are what is trained; a loop over them would be left at another place by each tree.
    local k = step(node, step(node, step(node, step(node, step(node, step(node, root[t]))))))
    for _ = 7, depth do
      k = step(node, k)
    end
    sum = sum + node[k].value
  end
  return sum
end

local function check(k, last, given, features)
  local f, v, r = given.feature[k], given.value[k], given.right[k]
  if v ~= v or v < -1e9 or v > 1e9 then
    return nil, "node " .. k .. " has no finite value"
  elseif f ~= LEAF and (f >= features or k + 1 >= last or r <= k + 1 or r >= last) then
    return nil, "node " .. k .. " points out of its tree"
  end
  return true
end

-- Lays out one tree, level by level; every node must be met once.
local function lay_out(forest, given, first, last)
  local at, depth = { [first] = first }, { [first] = 0 }
  local free = first + 1
  for k = first, last - 1 do
    local old, to = at[k], forest.node[k]
    if not old then
      return nil, "node " .. k .. " is nobody's child"
    end
    local f = given.feature[old]
    if f == LEAF then
      to.value = given.value[old]
      to.child, to.feature = k - rshift(to.cut, 31), NOTHING
    else
      if free + 2 > last then
        return nil, "node " .. old .. " shares a child"
      end
      to.cut, to.child, to.feature = cut_of(given.value[old]), free, f
      at[free], at[free + 1] = old + 1, given.right[old]
      depth[free], depth[free + 1] = depth[k] + 1, depth[k] + 1
      forest.depth = max(forest.depth, depth[k] + 1)
      forest.is_used[f] = true
      free = free + 2
    end
  end
  return true
end

local function note_used(forest, features)
  for f = 0, features - 1 do
    if forest.is_used[f] then
      forest.used[forest.used_count] = f
      forest.used_count = forest.used_count + 1
    end
  end
  forest.is_used = nil
end

--- Makes a forest of plain arrays, checked so that no vector can leave them or go round in them.
-- @tparam number nodes how many; @tparam number trees how many
-- @param root, feature, right, value const pointers to uint16, uint8, uint16, double
-- @tparam number features how many a vector has
-- @treturn table; or nil and what is wrong
function _M.new(nodes, trees, root, feature, right, value, features)
  local given = { feature = feature, right = right, value = value }
  local forest = {
    root = ffi_new("uint16_t[?]", trees), node = ffi_new("tw_tree_node[?]", nodes), depth = 0, bytes = 4 * features,
    used = ffi_new("uint8_t[?]", features), used_count = 0, is_used = {},
  }
  for t = 0, trees - 1 do
    local first, last = root[t], t + 1 < trees and root[t + 1] or nodes
    if first >= last or last > nodes or (t == 0 and first ~= 0) then
      return nil, "tree " .. t .. " begins out of order"
    end
    forest.root[t] = first
    for k = first, last - 1 do
      local ok, why = check(k, last, given, features)
      if not ok then
        return nil, why
      end
    end
    local ok, why = lay_out(forest, given, first, last)
    if not ok then
      return nil, why
    end
  end
  note_used(forest, features)
  return forest
end

return _M
