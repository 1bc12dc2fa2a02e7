--- What tells prompts and conversations apart without their text: hashes of a body that `request.lua` has read.
local ffi = require "ffi"
local hash = require "tokenweir.core.hash"
local prompt = require "tokenweir.core.body.prompt"
local shape = require "tokenweir.core.body.request_shape"

local bxor = require("bit").bxor
local ffi_u64 = ffi.typeof("uint64_t")

local TAGS, SLOTS = shape.TAGS, prompt.SLOTS
local CLOSE_OBJECT = 125

local _M = {}

-- Of a body without prompt members that we know: all of it but the model's name, which is spliced.
local function digest_whole(out, h)
  local p, k = out.p, out.where[TAGS.model]
  if k == 0 then
    return hash.bytes(p, out.size, h)
  end
  local first, last = out.firsts[k], out.lasts[k]
  return hash.bytes(p + last, out.size - last, hash.bytes(p, first, h))
end

--- A 64-bit hash of the prompt: equal for equal prompt members, whatever the other parameters say. Of the kind "other"
-- the whole body is hashed but for the name of its model.
-- @param[opt] seed number or uint64_t (a body in a file was hashed without)
-- @treturn string 16 hex digits; or nil where there is no prompt
function _M.digest(out, seed)
  if out.found then
    return out.found.digest
  end
  local h, any = ffi_u64(seed or 0), false
  for tag = 1, SLOTS do
    local k = out.where[tag]
    if k > 0 then
      local first = out.firsts[k]
      h, any = hash.bytes(out.p + first, out.lasts[k] - first, bxor(h, tag)), true
    end
  end
  if out.kind == "other" then
    return hash.hex(digest_whole(out, h))
  end
  return any and hash.hex(h) or nil
end

-- Long openings (a document in the system message) are told apart by their two ends and their size.
local END_BYTES = 4096

--- A 64-bit hash of the model and of what opens the conversation, through the user's first message: later turns of the
-- same chat repeat it, so they hash alike.
-- @return uint64_t, or nil where there is no list of messages with one of a user
function _M.opening(out)
  if out.found then
    local digest = out.found.opening_digest
    return digest and hash.from_hex(digest)
  end
  local tally, p = out.tally, out.p
  local slot = out.kind == "responses" and TAGS.input or TAGS.messages
  local first, last = tally.opening_first, tally.opening_limit
  if tally.items[slot] == 0 or tally.user_item == 0 then
    return nil
  end
  if last < 0 then
    last = out.lasts[out.where[slot]] - 1
  end
  while p[last - 1] ~= CLOSE_OBJECT do
    last = last - 1
  end
  local size = last - first
  -- No variable holds a hash on the way: see `hash.lua`.
  if size <= 2 * END_BYTES then
    return hash.bytes(p + first, size, hash.string(out.model or "", size))
  end
  return hash.bytes(p + last - END_BYTES, END_BYTES,
    hash.bytes(p + first, END_BYTES, hash.string(out.model or "", size)))
end

--- The same as text.
-- @treturn string 16 hex digits, or nil
function _M.opening_digest(out)
  local h = _M.opening(out)
  return h and hash.hex(h) or nil
end

return _M
