--- What tells prompts and conversations apart without their text: hashes of a body that `request.lua` has read.
local hash = require "tokenweir.core.hash"
local prompt = require "tokenweir.core.body.prompt"
local shape = require "tokenweir.core.body.request_shape"

local bxor = require("bit").bxor
local feed, feed_string, state = hash.feed, hash.feed_string, hash.state

local TAGS, SLOTS = shape.TAGS, prompt.SLOTS
local INPUT, MESSAGES = TAGS.input, TAGS.messages
local CLOSE_OBJECT = 125

local _M = {}

-- Of a body without prompt members that we know: all of it but the model's name, which is spliced.
local function digest_whole(out)
  local p, k = out.p, out.where[TAGS.model]
  if k == 0 then
    return feed(p, 0, out.size)
  end
  local first, last = out.firsts[k], out.lasts[k]
  feed(p, 0, first)
  feed(p, last, out.size - last)
end

--- A 64-bit hash of the prompt: equal for equal prompt members, whatever the other parameters say. Of the kind "other"
-- the whole body is hashed but for the name of its model.
-- @param[opt] seed number or uint64_t (a body in a file was hashed without)
-- @treturn string 16 hex digits; or nil where there is no prompt
function _M.digest(out, seed)
  if out.found then
    return out.found.digest
  end
  local any = false
  state[0] = seed or 0
  for tag = 1, SLOTS do
    local k = out.where[tag]
    if k > 0 then
      local first = out.firsts[k]
      state[0] = bxor(state[0], tag)
      feed(out.p, first, out.lasts[k] - first)
      any = true
    end
  end
  if out.kind == "other" then
    digest_whole(out)
    return hash.hex(state[0])
  end
  return any and hash.hex(state[0]) or nil
end

-- Long openings (a document in the system message) are told apart by their two ends and their size.
local END_BYTES = 4096

--- A 64-bit hash of the model and of what opens the conversation, through the user's first message: later turns of the
-- same chat repeat it, so they hash alike. It stands in `hash.state` then.
-- @return boolean, false where there is no list of messages with one of a user
local function opening(out)
  if out.found then
    local digest = out.found.opening_digest
    if digest then
      state[0] = hash.from_hex(digest)
      return true
    end
    return false
  end
  local tally, p = out.tally, out.p
  local slot = out.kind == "responses" and INPUT or MESSAGES
  local first, last = tally.start[0], tally.start[1]
  if tally.items[slot] == 0 or tally.user_item == 0 then
    return false
  end
  if last < 0 then
    last = out.lasts[out.where[slot]] - 1
  end
  while p[last - 1] ~= CLOSE_OBJECT do
    last = last - 1
  end
  local size = last - first
  state[0] = size
  feed_string(out.model or "")
  if size <= 2 * END_BYTES then
    feed(p, first, size)
  else
    feed(p, first, END_BYTES)
    feed(p, last - END_BYTES, END_BYTES)
  end
  return true
end
_M.opening = opening

--- The same as text.
-- @treturn string 16 hex digits, or nil
function _M.opening_digest(out)
  return opening(out) and hash.hex(state[0]) or nil
end

return _M
