--- Changes members of a JSON body by offset; every byte outside the edits stays as it was.
--
-- Edits are a flat list `{ first, last, text, first, last, text, ... }` in any order; `first` and `last` are 1-based
-- and inclusive, and `last == first - 1` inserts before `first`.
--
--     local edits = {}
--     splice.set_member(edits, parsed, "max_tokens", "256")
--     splice.agree(edits, parsed)
--     local changed = splice.apply(body, edits)
local ffi = require "ffi"
local bytes = require "tokenweir.core.bytes"
local json = require "tokenweir.core.json.walk"
local json_string = require "tokenweir.core.json.string"

local ffi_new, ffi_copy, ffi_string = ffi.new, ffi.copy, ffi.string
local space_end = json.space_end
local LAST_STRICT = require("tokenweir.core.body.request_shape").LAST_STRICT

-- Bodies of the usual sizes are put together in one buffer that stays.
local KEPT = 1024 * 1024
local kept

local _M = {}

-- Sorts the triples by `first`, in place and stably: there are two or three of them.
local function sort(edits)
  for k = 4, #edits, 3 do
    local first, last, text = edits[k], edits[k + 1], edits[k + 2]
    local j = k
    while j > 1 and edits[j - 3] > first do
      edits[j], edits[j + 1], edits[j + 2] = edits[j - 3], edits[j - 2], edits[j - 1]
      j = j - 3
    end
    edits[j], edits[j + 1], edits[j + 2] = first, last, text
  end
end

--- Sorts the edits and checks them against a body of `size` bytes.
-- @treturn number the size of the result; or nil and what is wrong
function _M.plan(size, edits)
  sort(edits)
  local total, reached = size, 0
  for k = 1, #edits, 3 do
    local first, last = edits[k], edits[k + 1]
    if first <= reached or last < first - 1 or last > size then
      return nil, "edits overlap or lie outside the body"
    end
    reached = last
    total = total - (last - first + 1) + #edits[k + 2]
  end
  return total
end

--- The body with the edits made.
-- @treturn string; or nil and what is wrong
function _M.apply(body, edits)
  local total, message = _M.plan(#body, edits)
  if not total then
    return nil, message
  end
  local buffer
  if total <= KEPT then
    kept = kept or ffi_new("uint8_t[?]", KEPT)
    buffer = kept
  else
    buffer = ffi_new("uint8_t[?]", total)
  end
  local p, size, from = bytes.of(body), 0, 0
  for k = 1, #edits, 3 do
    local first, text = edits[k], edits[k + 2]
    local before = first - 1 - from
    ffi_copy(buffer + size, p + from, before)
    ffi_copy(buffer + size + before, text, #text)
    size, from = size + before + #text, edits[k + 1]
  end
  ffi_copy(buffer + size, p + from, #body - from)
  return ffi_string(buffer, total)
end

local function add(edits, first, last, text)
  local k = #edits
  edits[k + 1], edits[k + 2], edits[k + 3] = first, last, text
end

-- Whether something is to be inserted before `first` already.
local function inserts_at(edits, first)
  for k = 1, #edits, 3 do
    if edits[k] == first and edits[k + 1] < first then
      return true
    end
  end
  return false
end

-- Whether members stay in front of what is inserted behind the last one.
local function any_stays(edits, parsed)
  for k = 1, parsed.members do
    local at, stays = parsed.firsts[k] + 1, true
    for j = 1, #edits, 3 do
      if edits[j + 2] == "" and edits[j] <= at and at <= edits[j + 1] then
        stays = false
        break
      end
    end
    if stays then
      return true
    end
  end
  return false
end

--- Adds the edit that gives a parsed request a member which it does not have, behind its last one. Call it after
-- `remove_members`.
-- @tparam table edits
-- @tparam table parsed what `request.parse` filled
-- @tparam string name
-- @tparam string text the value, as JSON
function _M.insert_member(edits, parsed, name, text)
  local count = parsed.members
  -- Behind the opening brace of an empty object, else behind the last value.
  local at = count == 0 and parsed.object + 1 or parsed.lasts[count]
  local comma = (any_stays(edits, parsed) or inserts_at(edits, at + 1)) and "," or ""
  add(edits, at + 1, at, comma .. json_string.encode(name) .. ":" .. text)
end

--- Adds the edits that set a member: each of its occurrences is replaced, so that no parser reads another value; where
-- there is none, it is inserted.
function _M.set_member(edits, parsed, name, text)
  local found = false
  for k = 1, parsed.members do
    if parsed.names[k] == name then
      add(edits, parsed.firsts[k] + 1, parsed.lasts[k], text)
      found = true
    end
  end
  if not found then
    _M.insert_member(edits, parsed, name, text)
  end
end

-- Where the name of member k begins (0-based): behind what stands between it and the value before.
local function key_start(parsed, k)
  if parsed.found then
    return parsed.found.keys[k]
  end
  if k == 1 then
    return space_end(parsed.p, parsed.object + 1)
  end
  return space_end(parsed.p, space_end(parsed.p, parsed.lasts[k - 1]) + 1)
end
_M.key_start = key_start

--- Adds the edits that take members out, each occurrence of them, with one comma each.
-- @tparam table names set of member names
-- @tparam function stays (parsed, k) -> whether this occurrence stays all the same
function _M.remove_members(edits, parsed, names, stays)
  local k, count = 1, parsed.members
  while k <= count do
    local last = k
    while last <= count and names[parsed.names[last]] and not stays(parsed, last) do
      last = last + 1
    end
    last = last - 1
    if last >= k then
      if k > 1 then
        add(edits, parsed.lasts[k - 1] + 1, parsed.lasts[last], "")
      elseif last < count then
        add(edits, key_start(parsed, 1) + 1, key_start(parsed, last + 1), "")
      else
        add(edits, key_start(parsed, 1) + 1, parsed.lasts[last], "")
      end
    end
    k = last >= k and last + 1 or k + 1
  end
end

local function is_edited(edits, first)
  for k = 1, #edits, 3 do
    if edits[k] == first and edits[k + 1] >= first then
      return true
    end
  end
  return false
end

-- The occurrence that counts of member k, of those that routing reads; else k.
local function counting(parsed, k)
  local tag = parsed.tags[k]
  return tag > 0 and tag <= LAST_STRICT and parsed.where[tag] or k
end

--- @return number of bytes by which `agree` makes a body longer
function _M.growth(parsed)
  local sum = 0
  for k = 1, parsed.members do
    local counts = counting(parsed, k)
    sum = sum + parsed.lasts[counts] - parsed.firsts[counts] - (parsed.lasts[k] - parsed.firsts[k])
  end
  return sum
end

--- Adds the edits after which every occurrence of a member that routing reads holds the value that was read, the last
-- one's: an engine whose parser takes the first of two then serves what was checked. Needed only where
-- `parsed.conflict` is set; call it after `set_member`.
function _M.agree(edits, parsed)
  for k = 1, parsed.members do
    local counts = counting(parsed, k)
    if counts ~= k and not is_edited(edits, parsed.firsts[k] + 1) then
      local first = parsed.firsts[counts]
      add(edits, parsed.firsts[k] + 1, parsed.lasts[k], ffi_string(parsed.p + first, parsed.lasts[counts] - first))
    end
  end
end

return _M
