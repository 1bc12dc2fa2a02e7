--- A list that is always in order: insertion and removal by halving and one move of memory. Ten thousand waiters are
-- 200 KB, and a place among them is found in a few hundred nanoseconds.
local ffi = require "ffi"

local C = ffi.C
local copy = ffi.copy
local doubles, int32s = ffi.typeof("double[?]"), ffi.typeof("int32_t[?]")

ffi.cdef [[
void *memmove(void *to, const void *from, size_t size);
]]

local FIRST_SIZE = 16

local _M = {}

--- An empty list.
function _M.new()
  return {
    size = 0, room = FIRST_SIZE, keys = doubles(FIRST_SIZE), works = doubles(FIRST_SIZE), ids = int32s(FIRST_SIZE),
    items = {}, free = {}, last_id = 0,
  }
end

local function resize(list, room)
  local size = list.size
  local keys, works, ids = doubles(room), doubles(room), int32s(room)
  copy(keys, list.keys, size * 8)
  copy(works, list.works, size * 8)
  copy(ids, list.ids, size * 4)
  list.keys, list.works, list.ids, list.room = keys, works, ids, room
end

-- How many keys are smaller than this one, or, with `equal`, not greater.
local function bound(list, key, equal)
  local keys, low, high = list.keys, 0, list.size
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    local there = keys[middle]
    if there < key or (equal and there == key) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

--- Puts an item behind all whose key is not greater.
-- @param work number that `before` sums
function _M.insert(list, key, item, work)
  local size = list.size
  if size == list.room then
    resize(list, 2 * size)
  end
  local free = list.free
  local id = free[#free]
  if id then
    free[#free] = nil
  else
    id = list.last_id + 1
    list.last_id = id
  end
  local at = bound(list, key, true)
  local keys, works, ids = list.keys, list.works, list.ids
  C.memmove(keys + at + 1, keys + at, (size - at) * 8)
  C.memmove(works + at + 1, works + at, (size - at) * 8)
  C.memmove(ids + at + 1, ids + at, (size - at) * 4)
  keys[at], works[at], ids[at] = key, work, id
  list.items[id] = item
  list.size = size + 1
end

--- Takes an item out that was put in with this key.
-- @return boolean whether it was there
function _M.remove(list, key, item)
  local at, size = bound(list, key, false), list.size
  local keys, works, ids, items = list.keys, list.works, list.ids, list.items
  while at < size and keys[at] == key and items[ids[at]] ~= item do
    at = at + 1
  end
  if at == size or keys[at] ~= key then
    return false
  end
  local id = ids[at]
  items[id] = nil
  list.free[#list.free + 1] = id
  local behind = size - at - 1
  C.memmove(keys + at, keys + at + 1, behind * 8)
  C.memmove(works + at, works + at + 1, behind * 8)
  C.memmove(ids + at, ids + at + 1, behind * 4)
  list.size = size - 1
  if list.room > FIRST_SIZE and list.size * 8 < list.room then
    resize(list, list.room / 2)
  end
  if size == 1 then
    list.free, list.last_id = {}, 0
  end
  return true
end

--- @param k number from 1
-- @return the k-th item and its key, or nil
function _M.at(list, k)
  if k < 1 or k > list.size then
    return nil
  end
  return list.items[list.ids[k - 1]], list.keys[k - 1]
end

--- @return number of items that stand before an item of this key which was the last to come, and their work
function _M.before(list, key)
  local count, works = bound(list, key, false), list.works
  local work = 0
  for k = 0, count - 1 do
    work = work + works[k]
  end
  return count, work
end

return _M
