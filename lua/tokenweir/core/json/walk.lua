--- One validating pass over JSON text (RFC 8259), by byte offset: nothing is decoded, copied or built.
--
-- A caller describes what it wants with a tree of nodes (`node.lua`) and a table of static
-- functions (`on`) that are called at the values it named. Everything else is checked and stepped over, strings
-- with memchr, so that a long prompt costs about as much as reading it once.
--
-- Checked: structure, literals, numbers, nesting, no NUL. Not checked: the inside of strings that nobody asked for
-- (other control characters, escapes, UTF-8). Every parser agrees on where a string ends, and looking at each of its
-- bytes costs more than the rest of the request.
--
-- Memory: `p` is read in `[0, n]` only, and `p[n]` must be 0 (a Lua string has it; see `body_file` for files).
-- Offsets are 0-based; a span `[first, last)` leaves out `last`.
local ffi = require "ffi"
local bytes = require "tokenweir.core.bytes"
local fixed_array = require "tokenweir.core.fixed_array"
local json_string = require "tokenweir.core.json.string"
local nodes_of = require "tokenweir.core.json.node"
-- Of its own, where this module itself is loaded once more: its loops are then compiled apart, too.
local scalar = require("tokenweir.core.fresh").load "tokenweir.core.json.scalar"

local ffi_string = ffi.string
local find = bytes.find
local string_end = require("tokenweir.core.json.quote").string_end
local integers_end, is_digit = scalar.integers_end, scalar.is_digit
local literal_end, number_end = scalar.literal_end, scalar.number_end
local child, child_named, number_of = nodes_of.child, nodes_of.child_named, nodes_of.number_of
local nodes, NOTHING = nodes_of.NODES, nodes_of.NOTHING

local _M = {}

--- Deeper documents are refused: engines written in Rust stop at 128, Python's parser overflows near 1,000.
_M.MAX_DEPTH = 256

--- What a walk says that was given up because the text holds too many values, or members.
_M.TOO_MANY = "too many values"

--- Of values to be read: as many as there are. A whole number, as the others are: see `walk`.
_M.ALL = 2147483647

local MAX_DEPTH, TOO_MANY = _M.MAX_DEPTH, _M.TOO_MANY
local QUOTE, BACKSLASH, COMMA, COLON = 34, 92, 44, 58
local OPEN_OBJECT, OPEN_ARRAY = 123, 91
local CLOSE_OBJECT = 125

-- What a walk awaits next: a comma or the end of what is open; a value; the name of a member.
local MORE, VALUE, NAME = 0, 1, 2

-- Of the containers that are open: the byte that closes each, and the number of its node.
local closers, parents = fixed_array.new("uint8_t", MAX_DEPTH + 1), fixed_array.new("int32_t", MAX_DEPTH + 1)

local function skip_spaces(p, i)
  local c = p[i]
  while c == 32 or c == 10 or c == 13 or c == 9 do
    i = i + 1
    c = p[i]
  end
  return i
end

-- No space or one, as compact and as Python's default writers have it, takes no loop (a loop would end the trace).
local function space_end(p, i)
  local c = p[i]
  if c > 32 then
    return i
  end
  if c == 32 and p[i + 1] > 32 then
    return i + 1
  end
  return (skip_spaces(p, i))
end
_M.space_end = space_end

--- A member name as a Lua string, escapes decoded.
-- @return nil, message, offset when it is not a valid JSON string
local function name_of(p, first, last)
  if find(p, BACKSLASH, first, last) < 0 then
    return (ffi_string(p + first, last - first))
  end
  return json_string.decode_bytes(p, first, last)
end

local function unterminated(p, i, n)
  local nul = find(p, 0, i, n)
  if nul >= 0 then
    return nil, "NUL byte in a string", nul
  end
  return nil, "unterminated string that begins", i
end

--- Walks the one value at `i` (spaces may stand before it).
--
-- `on.string(state, node, p, first, last)` gets the span inside the quotes, `on.number(state, node, p, first, last)`
-- that of the number, `on.count(state, node, count)` their number, `on.open(state, node, p, first)` a container's first
-- byte. `on.whole(state, node, p, first, n)` is asked before that whether it reads the object by itself, which has two
-- members then and holds no container: it returns the offset behind the object, or 0. With `members`,
-- `on.member(state, node, p, name, first)` and `on.ended(state, p, last)` enclose each member of the outermost object;
-- the former gets no name of a node that its parent names, and returns true where there are too many. They are plain
-- functions of a static table, so that compiled code runs through them. `node` has the `code` and `tag` that it was
-- made with, and must not be kept.
--
-- @param p const uint8_t *, readable in [0, n] with p[n] == 0
-- @tparam number i offset of the value
-- @tparam number n length
-- @tparam table root node of the value
-- @tparam table on the functions
-- @tparam table state passed to them
-- @tparam boolean members whether to call `on.member` and `on.ended`
-- @tparam number most commas and containers after which it gives up, at a comma: a text costs what it holds of values
--   rather than of bytes
-- @treturn number the offset after the value and the spaces behind it; or nil, what is wrong (`TOO_MANY` for that), its
--   offset
function _M.walk(p, i, n, root, on, state, members, most)
  -- Numbers and not booleans: true and false are two types to LuaJIT, and a loop whose variables change their types is
  -- compiled in pieces.
  local depth, node, awaits = 0, root.place or number_of(root), VALUE
  local closer, parent = 0, 0
  i = space_end(p, i)
  while true do
    -- A turn takes what stands before a value and the value itself: turns are what a walk costs.
    if awaits == MORE then
      if depth == 0 then
        -- Not a return: that can be compiled as a way which ends here, and what follows would be interpreted.
        break
      end
      local c = p[i]
      if c == closer then
        depth = depth - 1
        closer, parent = closers[depth], parents[depth]
        i = i + 1
        goto ended
      elseif c ~= COMMA then
        return nil, closer == CLOSE_OBJECT and "expected ',' or '}'" or "expected ',' or ']'", i
      end
      most = most - 1
      if most < 0 then
        return nil, TOO_MANY, i
      end
      i = space_end(p, i + 1)
      if closer == CLOSE_OBJECT then
        awaits = NAME
      else
        node = nodes[parent].each
      end
    end
    if awaits == NAME then
      if p[i] ~= QUOTE then
        return nil, "expected a member name in double quotes", i
      end
      local first = i + 1
      local last = string_end(p, first, n)
      if last < 0 then
        return unterminated(p, i, n)
      end
      i = space_end(p, last + 1)
      if p[i] ~= COLON then
        return nil, "expected ':'", i
      end
      i = space_end(p, i + 1)
      if nodes[parent].names < 0 then
        node = nodes[parent].other
      else
        node = child(parent, p, first, last)
        local name
        if node < 0 then
          node = nodes[parent].other
          if members and depth == 1 or find(p, BACKSLASH, first, last) >= 0 then
            local message, at
            name, message, at = name_of(p, first, last)
            if not name then
              return nil, message, at
            end
            local named = child_named(parent, name)
            node = named < 0 and node or named
          end
        end
        if members and depth == 1 and on.member(state, nodes[node], p, name, i) then
          return nil, TOO_MANY, i
        end
      end
    end
    do
      local c = p[i]
      if c == QUOTE then
        local last = string_end(p, i + 1, n)
        if last < 0 then
          return unterminated(p, i, n)
        end
        if nodes[node].string then
          on.string(state, nodes[node], p, i + 1, last)
        end
        i = last + 1
      elseif c == OPEN_OBJECT or c == OPEN_ARRAY then
        if depth == MAX_DEPTH then
          return nil, "nested deeper than " .. MAX_DEPTH .. " levels", i
        end
        if nodes[node].whole and most >= 2 then
          local after = on.whole(state, nodes[node], p, i, n)
          if after > 0 then
            most, i, awaits = most - 2, space_end(p, after), MORE
            goto continue
          end
        end
        if nodes[node].open then
          on.open(state, nodes[node], p, i)
        end
        depth, most = depth + 1, most - 1
        closer, parent = c + 2, node
        closers[depth], parents[depth] = closer, parent
        i = space_end(p, i + 1)
        if p[i] == closer then
          awaits = MORE
        elseif c == OPEN_OBJECT then
          awaits = NAME
        else
          awaits = VALUE
          node = nodes[parent].each
          if nodes[node].count then
            local stop, count = integers_end(p, i)
            i = space_end(p, stop)
            if count > 0 then
              on.count(state, nodes[node], count)
            end
          end
        end
        goto continue
      elseif c == 45 or is_digit(c) then
        local last, bad = number_end(p, i)
        if not last then
          return nil, "expected a digit", bad
        end
        if nodes[node].number then
          on.number(state, nodes[node], p, i, last)
        elseif nodes[node].count then
          on.count(state, nodes[node], 1)
        end
        i = last
      else
        local last = literal_end(p, i, c)
        if not last then
          return nil, "expected a value", i
        end
        i = last
      end
      awaits = MORE
    end
    ::ended::
    -- A value has ended just before i.
    if members and depth == 1 and closer == CLOSE_OBJECT then
      on.ended(state, p, i)
    end
    i = space_end(p, i)
    ::continue::
  end
  return i
end

--- The offset after the value at `i` and the spaces behind it; or nil, what is wrong, its offset.
function _M.skip(p, i, n)
  return _M.walk(p, i, n, NOTHING, nil, nil, false, _M.ALL)
end

return _M
