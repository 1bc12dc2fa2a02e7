--- Base64 (RFC 4648, with padding) to and from bytes, for numbers in JSON documents.
local bit = require "bit"
local ffi = require "ffi"
local bytes = require "tokenweir.core.bytes"
local fixed_array = require "tokenweir.core.fixed_array"

local band, bor, lshift, rshift = bit.band, bit.bor, bit.lshift, bit.rshift

local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local PAD = 61
local digit = fixed_array.new("uint8_t", 256)
local letter = fixed_array.new("uint8_t", 64)
ffi.fill(digit, 256, 255)
for k = 0, 63 do
  letter[k] = ALPHABET:byte(k + 1)
  digit[letter[k]] = k
end

local _M = {}

--- @tparam string text
-- @treturn string the bytes; or nil and what is wrong
function _M.decode(text)
  local n = #text
  if n % 4 ~= 0 then
    return nil, "base64 of a length that is no multiple of 4"
  end
  local p = bytes.of(text)
  local out = ffi.new("uint8_t[?]", n / 4 * 3 + 1)
  local size = n / 4 * 3
  if n > 0 and p[n - 1] == PAD then
    size = size - (p[n - 2] == PAD and 2 or 1)
  end
  local wrong = 0
  for k = 0, n / 4 - 1 do
    local a, b, c, d = digit[p[4 * k]], digit[p[4 * k + 1]], digit[p[4 * k + 2]], digit[p[4 * k + 3]]
    if k == n / 4 - 1 then
      -- Only the end may be padded.
      if p[n - 1] == PAD then
        d = 0
        if p[n - 2] == PAD then
          c = 0
        end
      end
    end
    wrong = bor(wrong, a, b, c, d)
    local word = bor(lshift(a, 18), lshift(b, 12), lshift(c, 6), d)
    out[3 * k], out[3 * k + 1], out[3 * k + 2] = rshift(word, 16), band(rshift(word, 8), 255), band(word, 255)
  end
  if wrong > 63 then
    return nil, "a character that base64 does not have"
  end
  return ffi.string(out, size)
end

--- @tparam string text
-- @treturn string
function _M.encode(text)
  local n = #text
  local p = bytes.of(text)
  local groups = (n - n % 3) / 3
  local out = ffi.new("uint8_t[?]", 4 * groups + 4)
  for k = 0, groups - 1 do
    local word = bor(lshift(p[3 * k], 16), lshift(p[3 * k + 1], 8), p[3 * k + 2])
    out[4 * k], out[4 * k + 1] = letter[rshift(word, 18)], letter[band(rshift(word, 12), 63)]
    out[4 * k + 2], out[4 * k + 3] = letter[band(rshift(word, 6), 63)], letter[band(word, 63)]
  end
  local size, rest = 4 * groups, n % 3
  if rest > 0 then
    local word = bor(lshift(p[n - rest], 16), rest == 2 and lshift(p[n - 1], 8) or 0)
    out[size], out[size + 1] = letter[rshift(word, 18)], letter[band(rshift(word, 12), 63)]
    out[size + 2], out[size + 3] = rest == 2 and letter[band(rshift(word, 6), 63)] or PAD, PAD
    size = size + 4
  end
  return ffi.string(out, size)
end

return _M
