--- Checks a decoded document against its shape in `tokenweir.contract`.
-- A reader keeps its old copy when a document fails here; the error names the member.
local contract = require "tokenweir.contract"

local type, tostring, next, pairs, ipairs = type, tostring, next, pairs, ipairs
local floor, huge = math.floor, math.huge

-- Items of a document's list after which a caller that asked for it gets its turn.
local TURN = 50

local check_value

-- Errors begin with what is wrong; on the way back each level puts its part of the path in front. Paths are not made
-- for what is right, which is nearly everything.

local function check_number(value, shape)
  if type(value) ~= "number" then
    return nil, ": a number is wanted, got " .. type(value)
  end
  if value ~= value or value == huge or value == -huge then
    return nil, ": not a finite number"
  end
  if shape.type == "integer" and value ~= floor(value) then
    return nil, ": a whole number is wanted, got " .. value
  end
  local low = (shape.min and value < shape.min) or (shape.above and value <= shape.above)
  if low or (shape.max and value > shape.max) then
    return nil, ": " .. value .. " is out of range"
  end
  return true
end

local function check_string(value, shape)
  if type(value) ~= "string" then
    return nil, ": a string is wanted, got " .. type(value)
  end
  if (shape.min_length and #value < shape.min_length) or (shape.max_length and #value > shape.max_length * 4) then
    return nil, ": wrong length " .. #value
  end
  if shape.enum then
    for _, allowed in ipairs(shape.enum) do
      if value == allowed then
        return true
      end
    end
    return nil, ": unknown value '" .. value .. "'"
  end
  return true
end

local function check_array(value, shape, pause)
  if type(value) ~= "table" then
    return nil, ": a list is wanted, got " .. type(value)
  end
  local count = #value
  if count == 0 and next(value) ~= nil then
    return nil, ": a list is wanted, got an object"
  end
  if (shape.max_items and count > shape.max_items) or (shape.min_items and count < shape.min_items) then
    return nil, ": wrong number of items " .. count
  end
  for i = 1, count do
    local ok, err = check_value(value[i], shape.items)
    if not ok then
      return nil, "[" .. i .. "]" .. err
    end
    if pause and i % TURN == 0 then
      pause()
    end
  end
  return true
end

local function check_object(value, shape, pause)
  if type(value) ~= "table" then
    return nil, ": an object is wanted, got " .. type(value)
  end
  if shape.members then
    for name, member in pairs(shape.members) do
      local ok, err = check_value(value[name], member, pause)
      if not ok then
        return nil, "." .. name .. err
      end
    end
  elseif shape.values then
    for name, item in pairs(value) do
      if type(name) ~= "string" then
        return nil, ": an object is wanted, got a list"
      end
      local ok, err = check_value(item, shape.values)
      if not ok then
        return nil, "." .. name .. err
      end
    end
  end
  return true
end

-- cjson's null is a light userdata, lupa's is nil: neither is a value
local function absent(value)
  return value == nil or type(value) == "userdata" or type(value) == "cdata"
end

function check_value(value, shape, pause)
  if absent(value) then
    if shape.required and not shape.null then
      return nil, ": missing"
    end
    return true
  end
  local kind = shape.type
  if kind == "number" or kind == "integer" then
    return check_number(value, shape)
  elseif kind == "string" then
    return check_string(value, shape)
  elseif kind == "boolean" then
    if type(value) ~= "boolean" then
      return nil, ": true or false is wanted, got " .. type(value)
    end
    return true
  elseif kind == "array" then
    return check_array(value, shape, pause)
  end
  return check_object(value, shape)
end

local _M = {}

--- @param document table the decoded JSON
-- @param name string which document, by its name in `contract.shapes`
-- @param pause function or nil, called now and then within a long list: it may yield
-- @return true, or nil and what is wrong
function _M.document(document, name, pause)
  if type(document) ~= "table" then
    return nil, name .. ": an object is wanted, got " .. type(document)
  end
  if document.schema ~= contract.schema then
    return nil, name .. ": schema " .. tostring(document.schema) .. " is not " .. contract.schema
  end
  local ok, err = check_object(document, contract.shapes[name], pause)
  if not ok then
    return nil, name .. err
  end
  return true
end

return _M
