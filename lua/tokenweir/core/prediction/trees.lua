--- Sums of regression trees, as gradient boosting makes them, over flat arrays.
--
-- The nodes of a tree stand in a row, a node's left child behind it. A node that is no leaf sends a vector to the left
-- where `x[feature] <= value`, else to `right`; a leaf has the feature LEAF and its `value` is what the tree says.
local ffi = require "ffi"

local _M = {}

--- Marks a leaf.
_M.LEAF = 255
local LEAF = _M.LEAF

--- What the trees of an ensemble say of a vector, added up.
-- @param forest table: `root` (uint16 array), `feature` (uint8), `right` (uint16), `value` (double)
-- @tparam number first, last the ensemble's trees
-- @param x const float *
-- @treturn number
function _M.sum(forest, first, last, x)
  local root, feature, right, value = forest.root, forest.feature, forest.right, forest.value
  local sum = 0
  for t = first, last do
    local k = root[t]
    local f = feature[k]
    while f ~= LEAF do
      if x[f] <= value[k] then
        k = k + 1
      else
        k = right[k]
      end
      f = feature[k]
    end
    sum = sum + value[k]
  end
  return sum
end

--- Makes a forest of plain arrays, checked so that no vector can leave them or go round in them.
-- @tparam number nodes how many; @tparam number trees how many
-- @param root, feature, right, value const pointers to uint16, uint8, uint16, double
-- @tparam number features how many a vector has
-- @treturn table; or nil and what is wrong
function _M.new(nodes, trees, root, feature, right, value, features)
  local forest = {
    nodes = nodes, trees = trees,
    root = ffi.new("uint16_t[?]", trees), feature = ffi.new("uint8_t[?]", nodes),
    right = ffi.new("uint16_t[?]", nodes), value = ffi.new("double[?]", nodes),
  }
  for t = 0, trees - 1 do
    local first, last = root[t], t + 1 < trees and root[t + 1] or nodes
    if first >= last or last > nodes or (t == 0 and first ~= 0) then
      return nil, "tree " .. t .. " begins out of order"
    end
    forest.root[t] = first
    for k = first, last - 1 do
      local f, v, r = feature[k], value[k], right[k]
      if v ~= v or v < -1e9 or v > 1e9 then
        return nil, "node " .. k .. " has no finite value"
      elseif f ~= LEAF and (f >= features or r <= k + 1 or r >= last) then
        return nil, "node " .. k .. " points out of its tree"
      end
      forest.feature[k], forest.value[k], forest.right[k] = f, v, r
    end
    if forest.feature[last - 1] ~= LEAF then
      return nil, "tree " .. t .. " does not end in a leaf"
    end
  end
  return forest
end

return _M
