--- Checks a decoded document against its shape in `tokenweir.contract`.
-- A reader keeps its old copy when a document fails here; the error names the member.
local contract = require "tokenweir.contract"

local type, tostring, next, pairs, ipairs = type, tostring, next, pairs, ipairs
local floor, huge = math.floor, math.huge

local check_value

local function check_number(value, shape, at)
  if type(value) ~= "number" then
    return nil, at .. ": a number is wanted, got " .. type(value)
  end
  if value ~= value or value == huge or value == -huge then
    return nil, at .. ": not a finite number"
  end
  if shape.type == "integer" and value ~= floor(value) then
    return nil, at .. ": a whole number is wanted, got " .. value
  end
  local low = (shape.min and value < shape.min) or (shape.above and value <= shape.above)
  if low or (shape.max and value > shape.max) then
    return nil, at .. ": " .. value .. " is out of range"
  end
  return true
end

local function check_string(value, shape, at)
  if type(value) ~= "string" then
    return nil, at .. ": a string is wanted, got " .. type(value)
  end
  if (shape.min_length and #value < shape.min_length) or (shape.max_length and #value > shape.max_length * 4) then
    return nil, at .. ": wrong length " .. #value
  end
  if shape.enum then
    for _, allowed in ipairs(shape.enum) do
      if value == allowed then
        return true
      end
    end
    return nil, at .. ": unknown value '" .. value .. "'"
  end
  return true
end

local function check_array(value, shape, at)
  if type(value) ~= "table" then
    return nil, at .. ": a list is wanted, got " .. type(value)
  end
  local count = #value
  if count == 0 and next(value) ~= nil then
    return nil, at .. ": a list is wanted, got an object"
  end
  if (shape.max_items and count > shape.max_items) or (shape.min_items and count < shape.min_items) then
    return nil, at .. ": wrong number of items " .. count
  end
  for i = 1, count do
    local ok, err = check_value(value[i], shape.items, at .. "[" .. i .. "]")
    if not ok then
      return nil, err
    end
  end
  return true
end

local function check_object(value, shape, at)
  if type(value) ~= "table" then
    return nil, at .. ": an object is wanted, got " .. type(value)
  end
  if shape.members then
    for name, member in pairs(shape.members) do
      local ok, err = check_value(value[name], member, at .. "." .. name)
      if not ok then
        return nil, err
      end
    end
  elseif shape.values then
    for name, item in pairs(value) do
      if type(name) ~= "string" then
        return nil, at .. ": an object is wanted, got a list"
      end
      local ok, err = check_value(item, shape.values, at .. "." .. name)
      if not ok then
        return nil, err
      end
    end
  end
  return true
end

-- cjson's null is a light userdata, lupa's is nil: neither is a value
local function absent(value)
  return value == nil or type(value) == "userdata" or type(value) == "cdata"
end

function check_value(value, shape, at)
  if absent(value) then
    if shape.required and not shape.null then
      return nil, at .. ": missing"
    end
    return true
  end
  local kind = shape.type
  if kind == "number" or kind == "integer" then
    return check_number(value, shape, at)
  elseif kind == "string" then
    return check_string(value, shape, at)
  elseif kind == "boolean" then
    if type(value) ~= "boolean" then
      return nil, at .. ": true or false is wanted, got " .. type(value)
    end
    return true
  elseif kind == "array" then
    return check_array(value, shape, at)
  end
  return check_object(value, shape, at)
end

local _M = {}

--- @param document table the decoded JSON
-- @param name string which document: `snapshot`, `settings`, `stats`, `lease`
-- @return true, or nil and what is wrong
function _M.document(document, name)
  if type(document) ~= "table" then
    return nil, name .. ": an object is wanted, got " .. type(document)
  end
  if document.schema ~= contract.schema then
    return nil, name .. ": schema " .. tostring(document.schema) .. " is not " .. contract.schema
  end
  return check_value(document, contract.shapes[name], name)
end

return _M
