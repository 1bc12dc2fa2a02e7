--- The turns of a conversation, noted while `json.walk` passes over them: how many messages and bytes of each role, and
-- where the texts that matter for prediction stand.
--
-- Called for every message of long chats, so there is hardly a branch in it: what need not be kept is written to a
-- place that nobody reads.
local ffi = require "ffi"
local fixed_array = require "tokenweir.core.fixed_array"

local min = math.min

ffi.cdef [[
typedef struct {
  int32_t role, texts;
  double bytes;
  int32_t first[2], last[2];
  double count[8], total[8], bytes_of[16];
  int32_t texts_of[16], first_of[32], last_of[32];
} tw_turns;
]]

local SIZE = ffi.sizeof("tw_turns")

--- Roles. The output of tools has none in responses; NONE stands where no message is being read.
local TOOL, SYSTEM, USER, ASSISTANT, NONE = 0, 1, 2, 3, 4

local role_of, size_of = fixed_array.new("int32_t", 256), fixed_array.new("int32_t", 256)
for _, role in pairs { { "user", USER }, { "assistant", ASSISTANT }, { "system", SYSTEM }, { "developer", SYSTEM } } do
  local letter = role[1]:byte()
  role_of[letter], size_of[letter] = role[2], #role[1]
end

local _M = { TOOL = TOOL, SYSTEM = SYSTEM, USER = USER, ASSISTANT = ASSISTANT, NONE = NONE }

--- @return tw_turns
function _M.new()
  return ffi.new("tw_turns")
end

--- Forgets the conversation.
function _M.clear(turns)
  ffi.fill(turns, SIZE)
  turns.role = NONE
end

--- The message that was being read, if one was, is complete. The first message of a role is kept, and the last.
function _M.finish(turns)
  local role = turns.role
  local count = turns.count[role]
  local at = 2 * role + min(count, 1)
  turns.count[role] = count + 1
  turns.total[role] = turns.total[role] + turns.bytes
  turns.bytes_of[at], turns.texts_of[at] = turns.bytes, turns.texts
  turns.first_of[2 * at], turns.last_of[2 * at] = turns.first[0], turns.last[0]
  turns.first_of[2 * at + 1], turns.last_of[2 * at + 1] = turns.first[1], turns.last[1]
  turns.role = NONE
end

--- A message begins; its role may come later.
function _M.begin(turns, role)
  turns.role, turns.texts, turns.bytes = role, 0, 0
end

--- The role of the message that is being read, by the inside of a JSON string. First letter and length tell the four
-- that matter from each other and from "tool" and "function".
-- @treturn number
function _M.read_role(turns, p, first, last)
  local letter = p[first]
  local role = size_of[letter] == last - first and role_of[letter] or TOOL
  if turns.role ~= NONE then
    turns.role = role
  end
  return role
end

--- A text of the message that is being read: where it stands, and its size as UTF-8. The first one is kept, and the
-- last.
function _M.text(turns, first, last, size)
  local texts = turns.texts
  local at = min(texts, 1)
  turns.first[at], turns.last[at] = first, last
  turns.texts, turns.bytes = texts + 1, turns.bytes + size
end

--- Where a text of the first or last message of a role stands.
-- @tparam boolean of_last the last message rather than the first; @tparam boolean end_text its last text
-- @treturn number first, last: `[first, last)`, the inside of a JSON string; or -1, -1
function _M.span(turns, role, of_last, end_text)
  if turns.count[role] == 0 then
    return -1, -1
  end
  local at = 2 * role + ((of_last and turns.count[role] > 1) and 1 or 0)
  local texts = turns.texts_of[at]
  if texts == 0 then
    return -1, -1
  end
  local k = 2 * at + ((end_text and texts > 1) and 1 or 0)
  return turns.first_of[k], turns.last_of[k]
end

--- Bytes of the last message of a role, 0 where there is none.
function _M.last_bytes(turns, role)
  return turns.bytes_of[2 * role + (turns.count[role] > 1 and 1 or 0)]
end

return _M
