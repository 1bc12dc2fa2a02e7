--- One validating pass over JSON text (RFC 8259), by byte offset: nothing is decoded, copied or built.
--
-- A caller describes what it wants with a tree of `node`s that mirrors the document and a table of static
-- functions (`on`) that are called at the values it named. Everything else is checked and stepped over, strings
-- with memchr, so that a long prompt costs about as much as reading it once.
--
-- Checked: structure, literals, numbers, nesting, no NUL. Not checked: the inside of strings that nobody asked for
-- (other control characters, escapes, UTF-8). Every parser agrees on where a string ends, and looking at each of its
-- bytes costs more than the rest of the request.
--
-- Memory: `p` is read in `[0, n]` only, and `p[n]` must be 0 (a Lua string has it; see `body_file` for files).
-- Offsets are 0-based; a span `[first, last)` leaves out `last`.
local bit = require "bit"
local ffi = require "ffi"
local bytes = require "tokenweir.core.bytes"
local json_string = require "tokenweir.core.json.string"

local bor, lshift = bit.bor, bit.lshift
local ffi_new, ffi_string = ffi.new, ffi.string
local find, same = bytes.find, bytes.same
local assert, pairs = assert, pairs
local string_end = require("tokenweir.core.json.quote").string_end

local _M = {}

--- Deeper documents are refused: engines written in Rust stop at 128, Python's parser overflows near 1,000.
_M.MAX_DEPTH = 256

local MAX_DEPTH = _M.MAX_DEPTH
local QUOTE, BACKSLASH, COMMA, COLON = 34, 92, 44, 58
local OPEN_OBJECT, OPEN_ARRAY = 123, 91
local CLOSE_OBJECT = 125

-- Of the containers that are open: the byte that closes each, and the node of each.
local closers = ffi_new("uint8_t[?]", MAX_DEPTH + 1)
local nodes = {}

--- A place in a document and what is wanted of it.
-- @tparam table fields
--   `code`, `tag`: numbers for the `on` functions; `string`, `number`, `open`: whether those are called here;
--   `count`: whether `on.count` is told how many numbers there are (in an array, many at a time);
--   `children`: nodes by member name, of `members`; `other`: the node of members that `children` does not name;
--   `each`: the node of array elements.
-- @treturn table a node; all have the same shape, so that compiled code reads any of them by the same offsets
function _M.node(fields)
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
local NOTHING = _M.node {}
_M.NOTHING = NOTHING
NOTHING.other, NOTHING.each = NOTHING, NOTHING

--- Names longer than this are compared as any other that nobody knows.
local LONGEST_NAME = 127

-- What tells a member's name in `[first, last)` from the others that are known beside it: its size, its first two bytes
-- and its last. The quotes around it may be read too.
local function key_of(p, first, last)
  return bor(lshift(last - first, 24), lshift(p[first], 16), lshift(p[first + 1], 8), p[last - 1])
end

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
  return skip_spaces(p, i)
end
_M.space_end = space_end

local function is_digit(c)
  return c >= 48 and c <= 57
end

local function digits_end(p, i)
  while is_digit(p[i]) do
    i = i + 1
  end
  return i
end

-- Steps over whole numbers that a comma follows, as lists of token ids are long: one loop that holds no other, up to
-- six digits a number. Returns where it stopped, at the beginning of a value, and how many it passed.
local function integers_end(p, i)
  local count = 0
  while is_digit(p[i]) do
    local j = i + 1
    if is_digit(p[j]) then
      if p[i] == 48 then break end
      j = j + 1
      if is_digit(p[j]) then j = j + 1 end
      if is_digit(p[j]) then j = j + 1 end
      if is_digit(p[j]) then j = j + 1 end
      if is_digit(p[j]) then j = j + 1 end
    end
    if p[j] ~= COMMA then break end
    j = j + 1
    if p[j] == 32 then j = j + 1 end
    i, count = j, count + 1
  end
  return i, count
end

-- Index after the number at `i`; or nil and the index of the byte that should have been a digit.
local function number_end(p, i)
  if p[i] == 45 then
    i = i + 1
  end
  local j
  if p[i] == 48 then
    j = i + 1
  else
    j = digits_end(p, i)
    if j == i then
      return nil, i
    end
  end
  local c = p[j]
  if c == 46 then
    i = j + 1
    j = digits_end(p, i)
    if j == i then
      return nil, i
    end
    c = p[j]
  end
  if c == 101 or c == 69 then
    i = j + 1
    c = p[i]
    if c == 43 or c == 45 then
      i = i + 1
    end
    j = digits_end(p, i)
    if j == i then
      return nil, i
    end
  end
  return j
end

-- Index after true, false or null at `i`, or nil. Each byte is read only if the one before it matched.
local function literal_end(p, i, c)
  if c == 116 then
    return p[i + 1] == 114 and p[i + 2] == 117 and p[i + 3] == 101 and i + 4 or nil
  elseif c == 102 then
    return p[i + 1] == 97 and p[i + 2] == 108 and p[i + 3] == 115 and p[i + 4] == 101 and i + 5 or nil
  elseif c == 110 then
    return p[i + 1] == 117 and p[i + 2] == 108 and p[i + 3] == 108 and i + 4 or nil
  end
  return nil
end

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
-- byte. With `members`, `on.member(state, node, p, name,
-- first)` and `on.ended(state, p, last)` enclose each member of the outermost object. They are plain functions of a
-- static table, so that compiled code runs through them.
--
-- @param p const uint8_t *, readable in [0, n] with p[n] == 0
-- @tparam number i offset of the value
-- @tparam number n length
-- @tparam table root node of the value
-- @tparam table on the functions
-- @tparam table state passed to them
-- @tparam boolean members whether to call `on.member` and `on.ended`
-- @treturn number the offset after the value and the spaces behind it; or nil, what is wrong, its offset
function _M.walk(p, i, n, root, on, state, members)
  -- A number and not a boolean: true and false are two types to LuaJIT, and a loop whose variables change their types
  -- is compiled in pieces.
  local depth, node, awaits_value = 0, root, 1
  local closer, parent = 0, NOTHING
  i = space_end(p, i)
  while true do
    local c = p[i]
    if awaits_value == 1 then
      if c == QUOTE then
        local last = string_end(p, i + 1, n)
        if last < 0 then
          return unterminated(p, i, n)
        end
        if node.string then
          on.string(state, node, p, i + 1, last)
        end
        i = last + 1
      elseif c == OPEN_OBJECT or c == OPEN_ARRAY then
        if depth == MAX_DEPTH then
          return nil, "nested deeper than " .. MAX_DEPTH .. " levels", i
        end
        if node.open then
          on.open(state, node, p, i)
        end
        depth = depth + 1
        closer, parent = c + 2, node
        closers[depth], nodes[depth] = closer, parent
        local inside = space_end(p, i + 1)
        if p[inside] ~= closer then
          i = inside
          if c == OPEN_ARRAY then
            node = parent.each or NOTHING
            if node.count then
              local stop, count = integers_end(p, i)
              i = space_end(p, stop)
              if count > 0 then
                on.count(state, node, count)
              end
            end
            goto continue
          end
          goto name
        end
        i = inside
        awaits_value = 0
        goto continue
      elseif c == 45 or is_digit(c) then
        local last, bad = number_end(p, i)
        if not last then
          return nil, "expected a digit", bad
        end
        if node.number then
          on.number(state, node, p, i, last)
        elseif node.count then
          on.count(state, node, 1)
        end
        i = last
      else
        local last = literal_end(p, i, c)
        if not last then
          return nil, "expected a value", i
        end
        i = last
      end
      awaits_value = 0
    elseif depth == 0 then
      return i
    elseif c == COMMA then
      i = space_end(p, i + 1)
      if closer ~= CLOSE_OBJECT then
        node = parent.each or NOTHING
        awaits_value = 1
        goto continue
      end
      goto name
    elseif c == closer then
      depth = depth - 1
      closer, parent = closers[depth], nodes[depth]
      i = i + 1
    else
      return nil, closer == CLOSE_OBJECT and "expected ',' or '}'" or "expected ',' or ']'", i
    end
    -- A value has ended just before i.
    if members and depth == 1 and closer == CLOSE_OBJECT then
      on.ended(state, p, i)
    end
    i = space_end(p, i)
    goto continue

    ::name::
    do
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
      local children = parent.children
      if children then
        local size = last - first
        local known = size <= LONGEST_NAME and children[key_of(p, first, last)]
        if known and same(p + first, known.name, size) then
          node = known.node
          if members and depth == 1 then
            on.member(state, node, p, known.name, i)
          end
        elseif members and depth == 1 or find(p, BACKSLASH, first, last) >= 0 then
          local name, message, at = name_of(p, first, last)
          if not name then
            return nil, message, at
          end
          node = children[name] or parent.other or NOTHING
          if members and depth == 1 then
            on.member(state, node, p, name, i)
          end
        else
          node = parent.other or NOTHING
        end
      else
        node = parent.other or NOTHING
      end
      awaits_value = 1
    end
    ::continue::
  end
end

--- The offset after the value at `i` and the spaces behind it; or nil, what is wrong, its offset.
function _M.skip(p, i, n)
  return _M.walk(p, i, n, NOTHING, nil, nil, false)
end

return _M
