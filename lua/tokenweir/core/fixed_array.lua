--- Arrays that live as long as the process, by a pointer to their first element.
--
-- LuaJIT compiles a pointer that a function finds outside of itself as a constant. An array there it would load, and
-- check for its type, in every trace that uses it.
local ffi = require "ffi"

local _M = {}

-- A pointer does not keep what it points to from being collected.
local kept = {}

--- @tparam string element its C type
-- @tparam number count of elements
-- @tparam[opt] table first what stands in the first ones; 0 in the others
-- @return pointer to the first
function _M.new(element, count, first)
  local array = ffi.new(element .. "[?]", count)
  for k = 1, first and #first or 0 do
    array[k - 1] = first[k]
  end
  kept[#kept + 1] = array
  return ffi.cast(element .. " *", array)
end

return _M
