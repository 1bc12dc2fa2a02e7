--- JSON strings (RFC 8259, section 7) to bytes and back.
local ffi = require "ffi"
local bit = require "bit"
local bytes = require "tokenweir.core.bytes"

local band, bor, lshift, rshift = bit.band, bit.bor, bit.lshift, bit.rshift
local byte, char, format, gsub = string.byte, string.char, string.format, string.gsub
local ffi_new, ffi_string = ffi.new, ffi.string
local find = bytes.find

local BACKSLASH, LOWER_U = 92, 117

-- What stands for itself or for a control character after a backslash.
local SIMPLE = {
  [34] = 34, [92] = 92, [47] = 47, [98] = 8, [102] = 12, [110] = 10, [114] = 13, [116] = 9,
}

local _M = {}

local function hex_digit(c)
  if c >= 48 and c <= 57 then
    return c - 48
  end
  c = bor(c, 32)
  if c >= 97 and c <= 102 then
    return c - 87
  end
  return nil
end

-- The 16-bit unit of the four hex digits in [i, i + 4), or nil.
local function unit(p, i, last)
  if i + 4 > last then
    return nil
  end
  local value = 0
  for k = i, i + 3 do
    local digit = hex_digit(p[k])
    if not digit then
      return nil
    end
    value = value * 16 + digit
  end
  return value
end

local function put_utf8(out, size, point)
  if point < 0x80 then
    out[size] = point
    return size + 1
  elseif point < 0x800 then
    out[size] = bor(0xC0, rshift(point, 6))
    out[size + 1] = bor(0x80, band(point, 63))
    return size + 2
  elseif point < 0x10000 then
    out[size] = bor(0xE0, rshift(point, 12))
    out[size + 1] = bor(0x80, band(rshift(point, 6), 63))
    out[size + 2] = bor(0x80, band(point, 63))
    return size + 3
  end
  out[size] = bor(0xF0, rshift(point, 18))
  out[size + 1] = bor(0x80, band(rshift(point, 12), 63))
  out[size + 2] = bor(0x80, band(rshift(point, 6), 63))
  out[size + 3] = bor(0x80, band(point, 63))
  return size + 4
end

--- Decodes the inside of a JSON string that lies in `[first, last)` of `p`.
-- A lone surrogate becomes the three bytes that UTF-8 would give it, as Python's parser keeps it.
-- @treturn string the bytes; or nil, what is wrong, its offset
function _M.decode_bytes(p, first, last)
  -- No escape is shorter than what it stands for.
  local out = ffi_new("uint8_t[?]", last - first + 1)
  local size, i = 0, first
  while i < last do
    local c = p[i]
    if c < 32 then
      return nil, "control character in a string", i
    elseif c ~= BACKSLASH then
      out[size] = c
      size, i = size + 1, i + 1
    elseif i + 1 < last and p[i + 1] == LOWER_U then
      local point = unit(p, i + 2, last)
      if not point then
        return nil, "invalid \\u escape", i
      end
      i = i + 6
      if point >= 0xD800 and point < 0xDC00 and i + 1 < last and p[i] == BACKSLASH and p[i + 1] == LOWER_U then
        local low = unit(p, i + 2, last)
        if low and low >= 0xDC00 and low < 0xE000 then
          point = 0x10000 + lshift(point - 0xD800, 10) + (low - 0xDC00)
          i = i + 6
        end
      end
      size = put_utf8(out, size, point)
    else
      local meant = i + 1 < last and SIMPLE[p[i + 1]]
      if not meant then
        return nil, "invalid escape", i
      end
      out[size] = meant
      size, i = size + 1, i + 2
    end
  end
  return ffi_string(out, size)
end

--- Decodes the inside of a JSON string.
-- @tparam string s what stands between the quotes
-- @treturn string the bytes; or nil, what is wrong, its offset
function _M.decode(s)
  local p = bytes.of(s)
  if find(p, BACKSLASH, 0, #s) >= 0 then
    return _M.decode_bytes(p, 0, #s)
  end
  for i = 0, #s - 1 do
    if p[i] < 32 then
      return nil, "control character in a string", i
    end
  end
  return s
end

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local function escape(c)
  return ESCAPES[c] or format("\\u%04x", byte(c))
end

--- A JSON string literal, quotes included. Bytes from 0x80 stay as they are: UTF-8 needs no escape.
-- @tparam string s
-- @treturn string
function _M.encode(s)
  return char(34) .. gsub(s, '[%c"\\]', escape) .. char(34)
end

return _M
