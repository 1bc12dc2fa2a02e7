--- What a reader of JSON wants of which place: a tree of nodes that mirrors the document (`walk.lua`).
local bit = require "bit"
local bytes = require "tokenweir.core.bytes"

local bor, lshift = bit.bor, bit.lshift
local assert, pairs = assert, pairs

local _M = {}

--- A place in a document and what is wanted of it.
-- @tparam table fields
--   `code`, `tag`: numbers for the `on` functions; `string`, `number`, `open`: whether those are called here;
--   `count`: whether `on.count` is told how many numbers there are (in an array, many at a time);
--   `children`: nodes by member name, of `members`; `other`: the node of members that `children` does not name;
--   `each`: the node of array elements.
-- @treturn table a node; all have the same shape, so that compiled code reads any of them by the same offsets
function _M.new(fields)
  return {
    code = fields.code or 0,
    tag = fields.tag or 0,
    string = fields.string or false,
    number = fields.number or false,
    count = fields.count or false,
    open = fields.open or false,
    children = fields.children or false,
    other = fields.other or false,
    each = fields.each or false,
  }
end

--- The node of what nobody asked for.
local NOTHING = _M.new {}
_M.NOTHING = NOTHING
NOTHING.other, NOTHING.each = NOTHING, NOTHING

--- Names longer than this are compared as any other that nobody knows.
local LONGEST_NAME = 127
_M.LONGEST_NAME = LONGEST_NAME

--- What tells a member's name in `[first, last)` from the others that are known beside it: its size, its first two
-- bytes and its last. The quotes around it may be read too.
local function key_of(p, first, last)
  return (bor(lshift(last - first, 24), lshift(p[first], 16), lshift(p[first + 1], 8), p[last - 1]))
end
_M.key_of = key_of

--- What `children` of a node is: the nodes by name, and by what tells a name without a Lua string of it, which would
-- have to be found among all others of this process.
-- @tparam table list nodes by name
function _M.members(list)
  local children = {}
  for name, at in pairs(list) do
    local written = '"' .. name .. '"'
    local key = key_of(bytes.of(written), 1, #name + 1)
    assert(not children[key] and #name <= LONGEST_NAME, name)
    children[name], children[key] = at, { name = name, node = at }
  end
  return children
end

return _M
