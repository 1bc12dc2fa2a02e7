--- What a reader of JSON wants of which place: a tree of nodes that mirrors the document (`walk.lua`).
--
-- Callers build it of tables. A walk reads it as an array of structures at a fixed place, by a node's number: there are
-- no tables to be checked for what they are, and a number may change from value to value where a pointer would be made
-- anew each time.
local bit = require "bit"
local ffi = require "ffi"
local bytes = require "tokenweir.core.bytes"
local fixed_array = require "tokenweir.core.fixed_array"

local bor, lshift, rshift, tobit = bit.bor, bit.lshift, bit.rshift, bit.tobit
local assert, pairs = assert, pairs
local same = bytes.same

ffi.cdef [[
typedef struct {
  int32_t code, tag;
  int32_t other, each;             /* nodes */
  int32_t names, shift;            /* where its children's names begin, -1 without any; see `spread` */
  bool string, number, count, open, whole;
} tw_json_node;
typedef struct {
  int32_t key, node;
  const uint8_t *name;
} tw_json_name;
]]

local MOST_NODES, MOST_NAMES = 1024, 8192

local nodes, names = fixed_array.new("tw_json_node", MOST_NODES), fixed_array.new("tw_json_name", MOST_NAMES)
-- The nodes as tables, by number; and where the names of a table of children begin, and how they are spread.
local tables, begin_of, shift_of = {}, {}, {}
local node_count, name_count = 0, 0

local _M = { NODES = nodes }

--- A place in a document and what is wanted of it.
-- @tparam table fields
--   `code`, `tag`: numbers for the `on` functions; `string`, `number`, `open`, `whole`: whether those are called here;
--   `count`: whether `on.count` is told how many numbers there are (in an array, many at a time);
--   `children`: nodes by member name, of `members`; `other`: the node of members that `children` does not name;
--   `each`: the node of array elements.
-- @treturn table a node, which may be changed until the first walk
function _M.new(fields)
  return {
    code = fields.code or 0,
    tag = fields.tag or 0,
    string = fields.string or false,
    number = fields.number or false,
    count = fields.count or false,
    open = fields.open or false,
    whole = fields.whole or false,
    children = fields.children or false,
    other = fields.other or false,
    each = fields.each or false,
    place = false,
  }
end

--- Names longer than this are compared as any other that nobody knows.
local LONGEST_NAME = 127

-- What tells a member's name in `[first, last)` from the others that are known beside it: its size, its first two
-- bytes and its last. The quotes around it may be read too.
local function key_of(p, first, last)
  return (bor(lshift(last - first, 24), lshift(p[first], 16), lshift(p[first + 1], 8), p[last - 1]))
end

local function key_of_string(name)
  local written = '"' .. name .. '"'
  return key_of(bytes.of(written), 1, #name + 1)
end

-- Which of 2^(32 - shift) places a key has. The product stays below 2^51, where `tobit` is exact.
local function spread(key, shift)
  return rshift(tobit(key * 329821), shift)
end

--- Makes sure that no two names have the same key.
-- @tparam table list nodes by name
function _M.members(list)
  local keys = {}
  for name in pairs(list) do
    local key = key_of_string(name)
    assert(not keys[key] and #name <= LONGEST_NAME, name)
    keys[key] = true
  end
  return list
end

local function clash(children, shift)
  local taken = {}
  for name in pairs(children) do
    local at = spread(key_of_string(name), shift)
    if taken[at] then
      return true
    end
    taken[at] = true
  end
  return false
end

-- The shift by which each of the names has a place of its own, and as few are free as can be.
local function shift_for(children)
  local shift = 31
  while clash(children, shift) do
    shift = shift - 1
  end
  return shift
end

local number_of

local function write_names(children)
  local begin, shift = name_count, shift_for(children)
  name_count = begin + lshift(1, 32 - shift)
  assert(name_count <= MOST_NAMES)
  begin_of[children], shift_of[children] = begin, shift
  for name, at in pairs(children) do
    local key = key_of_string(name)
    local to = names[begin + spread(key, shift)]
    to.key, to.node, to.name = key, number_of(at), bytes.of(name)
  end
end

--- The number of a node.
-- @tparam table at
function number_of(at)
  if at.place then
    return at.place
  end
  local place = node_count
  assert(place < MOST_NODES)
  at.place, tables[place], node_count = place, at, place + 1
  local to, children = nodes[place], at.children
  to.code, to.tag = at.code, at.tag
  to.string, to.number, to.count, to.open, to.whole = at.string, at.number, at.count, at.open, at.whole
  to.other, to.each = at.other and number_of(at.other) or 0, at.each and number_of(at.each) or 0
  if children and not begin_of[children] then
    write_names(children)
  end
  to.names, to.shift = begin_of[children] or -1, shift_of[children] or 0
  return place
end
_M.number_of = number_of

--- The node of what nobody asked for: number 0.
local NOTHING = _M.new {}
_M.NOTHING = NOTHING
NOTHING.other, NOTHING.each = NOTHING, NOTHING
number_of(NOTHING)

--- The number of the child whose name stands at `[first, last)`, of a node that has children; -1 if it has none of that
-- name, as it is written.
-- @tparam number at a node's number
function _M.child(at, p, first, last)
  local size = last - first
  if size > LONGEST_NAME then
    return -1
  end
  local key = key_of(p, first, last)
  local found = nodes[at].names + spread(key, nodes[at].shift)
  if names[found].key == key and same(p + first, names[found].name, size) then
    return names[found].node
  end
  return -1
end

--- The same by the name as a string.
function _M.child_named(at, name)
  local child = tables[at].children[name]
  return child and number_of(child) or -1
end

return _M
