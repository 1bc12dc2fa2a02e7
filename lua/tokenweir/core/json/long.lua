--- Decodes a snapshot of many backends in pieces: at once it would hold a worker up, the collector's share of it most.
--
-- Backends stand at the end of the snapshot, each beginning with its id. What parts them cannot stand inside a string,
-- where its quotes would be escaped. Where a text is not made so, it is decoded whole.
local type = type
local find, sub = string.find, string.sub

local LIST = '"backends":[{'
local NEXT = '},{"id":'
local PIECE = 25           -- backends
local LEAST = 65536         -- bytes, below which it is not worth it

local _M = {}

local function append(list, count, piece)
  for k = 1, #piece do
    list[count + k] = piece[k]
  end
  return count + #piece
end

-- The list whose first backend begins at `from`; nil where a piece is no JSON.
local function decode_list(text, from, decode, pause)
  local list, count, passed = {}, 0, 0
  local at = from
  while true do
    local last = find(text, NEXT, at, true)
    passed = passed + 1
    if not last or passed % PIECE == 0 then
      local piece = decode("[" .. sub(text, from, last or #text - 2) .. "]")
      if type(piece) ~= "table" then
        return nil
      end
      count = append(list, count, piece)
      if not last then
        return list
      end
      from = last + 2
      pause()
    end
    at = last + 2
  end
end

--- @param text string the JSON
-- @param decode function(text) -> value, or nil and what is wrong
-- @param pause function or nil, called between two pieces: it may yield. Without it the text is decoded whole
-- @return what `decode` would return for the whole
function _M.decode(text, decode, pause)
  local first, last = nil, nil
  if pause and #text >= LEAST and sub(text, -2) == "]}" then
    first, last = find(text, LIST, 1, true)
  end
  if first then
    local document = decode(sub(text, 1, last - 1) .. "]}")
    local list = type(document) == "table" and decode_list(text, last, decode, pause)
    if list then
      document.backends = list
      return document
    end
  end
  return decode(text)
end

return _M
