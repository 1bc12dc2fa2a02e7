--- The model that a form names (multipart/form-data, RFC 7578), found by offset and without a copy of its files.
local ffi = require "ffi"
local bytes = require "tokenweir.core.bytes"

local ffi_string = ffi.string
local find, gmatch, gsub, lower, match, sub = string.find, string.gmatch, string.gsub, string.lower, string.match,
  string.sub
local find_text, same = bytes.find_text, bytes.same

--- Parts and bytes of a part's head that are looked at; forms for engines have a dozen parts.
local MOST_PARTS, MOST_HEAD = 256, 8192
local MOST_MODEL = 1024
local CRLF = "\r\n"

local _M = {}

--- @param content_type string, the header
-- @return string the boundary; or nil where there is not exactly one
function _M.boundary(content_type)
  local folded = lower(content_type)
  local _, at = find(folded, ";%s*boundary=")
  if not at or find(folded, ";%s*boundary%*?[%d%*]*=", at) then
    return nil
  end
  local rest = sub(content_type, at + 1)
  local boundary = match(rest, '^"([^"\\]+)"%s*$') or match(rest, '^"([^"\\]+)"%s*;')
    or match(rest, "^([^%s;\"]+)%s*$") or match(rest, "^([^%s;\"]+)%s*;")
  return boundary and #boundary <= 70 and boundary or nil
end

-- The field's name of a part's head; nil where it has none, false where readers may differ about it.
local function name_of(head)
  head = gsub(head, "\r\n[ \t]+", " ")
  local name, count, file = nil, 0, false
  for line in gmatch(head .. CRLF, "(.-)\r\n") do
    local value = match(line, "^[Cc][Oo][Nn][Tt][Ee][Nn][Tt]%-[Dd][Ii][Ss][Pp][Oo][Ss][Ii][Tt][Ii][Oo][Nn]%s*:(.*)$")
    if value then
      for key, quoted in gmatch(value, ';%s*([%w%*]+)%s*=%s*("?[^";]*"?)') do
        key = lower(key)
        if key == "name" then
          name, count = match(quoted, '^"(.*)"$') or match(quoted, "^(%S*)%s*$"), count + 1
        elseif key == "name*" then
          return false
        elseif key == "filename" or key == "filename*" then
          file = true
        end
      end
    end
  end
  if count > 1 or name and find(name, "\\", 1, true) then
    return false
  end
  return not file and name or nil
end

--- Finds the field `model`.
-- @param p const uint8_t *; @param size bytes; @param boundary string
-- @return true, the model or nil, first, last (of its value in the body, 1-based and inclusive); or nil and what is
--   wrong with the form
function _M.model(p, size, boundary)
  local opening = "--" .. boundary
  local delimiter = CRLF .. opening
  local at = size >= #opening and same(p, bytes.of(opening), #opening) and -2 or find_text(p, delimiter, 0, size)
  local model, model_first, model_last
  for _ = 1, MOST_PARTS do
    if at < 0 and at ~= -2 then
      return nil, "a boundary is missing"
    end
    local from = at + #delimiter
    if from + 2 <= size and p[from] == 45 and p[from + 1] == 45 then
      return true, model, model_first, model_last
    end
    local limit = from + MOST_HEAD < size and from + MOST_HEAD or size
    local line = find_text(p, CRLF, from, limit)
    if line < 0 then
      return nil, "a boundary does not end its line"
    end
    local head_end = find_text(p, CRLF .. CRLF, line, limit)
    if head_end < 0 then
      return nil, "the head of a part is too long"
    end
    local name
    if head_end > line then
      name = name_of(ffi_string(p + line + 2, head_end - line - 2))
    end
    if name == false then
      return nil, "the name of a field can be read in two ways"
    end
    local first = head_end + 4
    at = find_text(p, delimiter, first, size)
    if name == "model" and at >= 0 then
      local value = at - first <= MOST_MODEL and ffi_string(p + first, at - first)
      if not value or find(value, "[%c\127]") then
        return nil, "'model' is no model's name"
      elseif model then
        return nil, "'model' is given twice"
      end
      model, model_first, model_last = value, first + 1, at
    end
  end
  return nil, "the form has too many parts"
end

return _M
