--- Fills a decoded document with the defaults of its shape in `tokenweir.contract`, and takes JSON nulls out of it,
-- so that its readers need to know neither.
local contract = require "tokenweir.contract"

local type, pairs = type, pairs

local function is_null(value)
  local kind = type(value)
  return kind == "userdata" or kind == "cdata"
end

local fill

local function fill_members(value, shape, skip)
  for name, member in pairs(shape.members) do
    local item = value[name]
    if is_null(item) then
      item = nil
      value[name] = nil
    end
    if item == nil and member.default ~= nil then
      item = type(member.default) == "table" and {} or member.default
      value[name] = item
    end
    if type(item) == "table" and name ~= skip then
      fill(item, member)
    end
  end
end

function fill(value, shape, skip)
  if shape.members then
    fill_members(value, shape, skip)
  elseif shape.values then
    for _, item in pairs(value) do
      if type(item) == "table" then
        fill(item, shape.values)
      end
    end
  elseif shape.items then
    for k = 1, #value do
      if type(value[k]) == "table" then
        fill(value[k], shape.items)
      end
    end
  end
  return value
end

local _M = {}

--- The defaults of one part of a document: what holds while there is none.
-- @param name string which document; @param part string, a member of it that is an object, or that holds such by name
-- @return table member -> default
function _M.of(name, part)
  local shape = contract.shapes[name].members[part]
  return fill({}, shape.values or shape)
end

--- @param document table, checked already (`check.lua`); changed in place
-- @param name string which document, by its name in `contract.shapes`
-- @param skip string or nil, a top-level member whose inside is left alone
-- @return table the document
function _M.fill(document, name, skip)
  fill(document, contract.shapes[name], skip)
  return document
end

return _M
