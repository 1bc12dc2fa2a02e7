--- Ids for requests: 32 hex digits, as nginx's $request_id, which draws random bytes each time (1 us). Here a worker
-- draws most of them once and counts in the rest.
local bit = require "bit"

local floor = math.floor
local tohex = bit.tohex

local _M = {}

local prefix, count

local function begin()
  local random = assert(io.open("/dev/urandom", "rb"))
  local bytes = random:read(16)
  random:close()
  prefix = bytes:sub(1, 12):gsub(".", function(byte)
    return ("%02x"):format(byte:byte())
  end)
  -- Counting from anywhere: ids of one worker are not told apart by their order alone.
  count = bytes:byte(13) * 65536 + bytes:byte(14) * 256 + bytes:byte(15)
end

--- @return string an id that no other request of any gateway has
function _M.next()
  if not prefix then
    begin()
  end
  count = count + 1
  if count >= 4294967296 then
    begin()
  end
  local id = prefix .. tohex(floor(count))
  return id
end

return _M
