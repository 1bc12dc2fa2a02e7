--- Ids for requests: 32 hex digits, as nginx's $request_id, which draws random bytes each time (1 us). Here a worker
-- draws most of them once and counts in the rest.
local bit = require "bit"
local ffi = require "ffi"
local fixed_array = require "tokenweir.core.fixed_array"

local band, rshift, tobit = bit.band, bit.rshift, bit.tobit

local SIZE, COUNTED = 32, 8

local _M = { SIZE = SIZE }

local id = fixed_array.new("uint8_t", SIZE)
-- The digits that count, two by two, and what each byte's two digits look like there.
local counted = ffi.cast("uint16_t *", id + (SIZE - COUNTED))
local digits = fixed_array.new("uint16_t", 256)
for byte = 0, 255 do
  ffi.copy(digits + byte, ("%02x"):format(byte), 2)
end

local count

local function begin()
  local random = assert(io.open("/dev/urandom", "rb"))
  local bytes = random:read(16)
  random:close()
  local drawn = bytes:sub(1, (SIZE - COUNTED) / 2):gsub(".", function(byte)
    return ("%02x"):format(byte:byte())
  end)
  ffi.copy(id, drawn, #drawn)
  -- Counting from anywhere: ids of one worker are not told apart by their order alone.
  count = bytes:byte(13) * 65536 + bytes:byte(14) * 256 + bytes:byte(15)
end

--- Makes an id that no other request of any gateway has.
-- @return uint8_t * to its SIZE bytes, valid until the next call
function _M.next()
  count = (count or 4294967295) + 1
  if count >= 4294967296 then
    begin()
  end
  local n = tobit(count)
  counted[0], counted[1] = digits[rshift(n, 24)], digits[band(rshift(n, 16), 255)]
  counted[2], counted[3] = digits[band(rshift(n, 8), 255)], digits[band(n, 255)]
  return id
end

return _M
