--- Which bytes of a request body the model reads, counted while `json.walk` passes over them.
--
-- A string counts unless it stands under a name that holds media (image, audio, file: their base64 is not text) or
-- that only labels (`role`, `type`, identifiers). The rule excludes by name, not by value: a user may write a text that
-- begins with "data:". What counts is the size of the text as UTF-8, with JSON's escapes undone, because a client that
-- writes "\u4e2d" for a three-byte character sends twice the bytes and the same tokens.
local bit = require "bit"
local ffi = require "ffi"
local bytes = require "tokenweir.core.bytes"
local fixed_array = require "tokenweir.core.fixed_array"
local nodes = require "tokenweir.core.json.node"
local prefix_blocks = require "tokenweir.core.body.prefix_blocks"
local turns = require "tokenweir.core.body.turns"

local floor, min = math.floor, math.min
local cast, copy, ffi_fill = ffi.cast, ffi.copy, ffi.fill
local find = bytes.find
local band, rshift = bit.band, bit.rshift
local string_end = require("tokenweir.core.json.quote").string_end
local clear_blocks, feed_blocks, take_blocks = prefix_blocks.clear, prefix_blocks.feed, prefix_blocks.take
local begin_turn, clear_turns, finish_turn, note_text = turns.begin, turns.clear, turns.finish, turns.text
local read_role = turns.read_role
local NONE, SYSTEM, TOOL, USER = turns.NONE, turns.SYSTEM, turns.TOOL, turns.USER
local node, members, NOTHING = nodes.new, nodes.members, nodes.NOTHING

local QUOTE, COMMA, COLON, BACKSLASH, LOWER_U, CLOSE_OBJECT = 34, 44, 58, 92, 117, 125

-- Escapes are counted in the first bytes of each string and extrapolated: 512 bytes hold the alphabet of a text, and a
-- long body of code would otherwise cost more for its line feeds than for all the rest. Past 4 KiB in all, 64 each.
local SAMPLE, SAMPLE_LATER, SAMPLE_ENOUGH = 512, 64, 4096

local TEXT, MEDIA, ROLE, MESSAGE, ITEM, TOKEN, INSTRUCTIONS, INPUT, DEFINITION = 1, 2, 3, 4, 5, 6, 7, 8, 9

local _M = {}

--- Number of members of one body that can hold prompt text (1-based slots).
local SLOTS = 8
_M.SLOTS = SLOTS

-- Bytes that JSON spends on the escape `\uXXXX` at `at` beyond what it stands for.
local function excess_of_code(p, at)
  local a, b, c = p[at + 2], p[at + 3], p[at + 4]
  if a == 48 and b == 48 and c < 56 then
    return 5
  elseif a == 48 and b < 56 or (a == 68 or a == 100) and b > 55 then
    -- Two bytes; a surrogate is half of a character of four.
    return 4
  end
  return 3
end

-- The same of the escapes that begin in [first, limit), and the offset up to which that was looked at: the last one may
-- reach over the limit.
local function escape_excess(p, first, limit, last)
  local excess, from = 0, first
  local at = find(p, BACKSLASH, first, limit)
  while at >= 0 do
    from = at
    -- Often several in a row: all of them, where a client writes ASCII only.
    repeat
      if p[from + 1] ~= LOWER_U then
        excess, from = excess + 1, from + 2
      elseif from + 6 > last then
        return excess, last
      else
        excess, from = excess + excess_of_code(p, from), from + 6
      end
    until from >= limit or p[from] ~= BACKSLASH
    at = find(p, BACKSLASH, from, limit)
  end
  return excess, from > limit and from or limit
end

--- Bytes of UTF-8 that the inside `[first, last)` of a JSON string stands for.
-- Exact where the escapes of all of it are counted (512 bytes by default), extrapolated beyond.
-- @tparam[opt] number sample how many bytes to look at
function _M.text_size(p, first, last, sample)
  local raw = last - first
  sample = sample or SAMPLE
  if raw <= sample then
    return raw - (escape_excess(p, first, last, last))
  end
  local excess, looked = escape_excess(p, first, first + sample, last)
  return raw - floor(excess * raw / (looked - first))
end
local text_size = _M.text_size

assert(SLOTS == 8)
ffi.cdef [[
typedef struct {
  int32_t slot;                    /* that is being read */
  int32_t sampled;                 /* bytes whose escapes were counted */
  int32_t user_item;               /* the first message of the user, from 1 */
  int32_t conversation;            /* the slot that the conversation stands in */
  int32_t start_at;                /* where in `start` the next message's beginning is noted */
  double start[3];                 /* of the first message, of the one after the user's first one, of another; or -1 */
  double text[9], tokens[9], items[9], media[9];  /* by slot */
  tw_turns turns;
} tw_tally;
]]

local SIZE = ffi.sizeof("tw_tally")
local FIRST, AFTER_USER, OTHER = 0, 1, 2

--- Counters of one request, by slot: `text` bytes, `tokens` given as numbers, `items` (messages, prompts or tools),
-- `media` parts; `turns` of the conversation. Where its opening stands, which later turns repeat: everything from
-- `start[0]` through the first message of the user, before `start[1]` if there is more.
-- @return tw_tally, to be filled by `take`
function _M.new_tally()
  return ffi.new("tw_tally")
end

-- Those of the request that is being read, and its beginnings: at a fixed place, for there is only one at a time.
local tally, blocks = fixed_array.new("tw_tally", 1), fixed_array.new("tw_prefix_blocks", 1)
local turns_of = cast("tw_turns *", cast("uint8_t *", tally) + ffi.offsetof("tw_tally", "turns"))

--- Begins with another request.
function _M.start()
  ffi_fill(tally, SIZE)
  turns_of.role = NONE
  clear_blocks(blocks)
end

--- Hands over what was counted.
-- @param into tw_tally; @param blocks_into tw_prefix_blocks
function _M.take(into, blocks_into)
  finish_turn(turns_of)
  copy(into, tally, SIZE)
  take_blocks(blocks_into, blocks)
end

--- Begins (again) to count the member of this slot: of duplicates the last one counts.
function _M.begin(slot)
  finish_turn(turns_of)
  if tally.conversation == slot then
    clear_turns(turns_of)
  end
  tally.slot = slot
  tally.text[slot], tally.tokens[slot], tally.items[slot], tally.media[slot] = 0, 0, 0, 0
end

local function count_text(p, first, last)
  local slot = tally.slot
  local sample = tally.sampled < SAMPLE_ENOUGH and SAMPLE or SAMPLE_LATER
  tally.sampled = tally.sampled + min(last - first, sample)
  local size = text_size(p, first, last, sample)
  tally.text[slot] = tally.text[slot] + size
  note_text(turns_of, first, last, size)
  feed_blocks(blocks, p, first, last)
end

-- A text that is a message by itself.
local function count_message(p, first, last, role)
  finish_turn(turns_of)
  begin_turn(turns_of, role)
  count_text(p, first, last)
  finish_turn(turns_of)
end

local function count_item(more)
  local slot = tally.slot
  tally.items[slot] = tally.items[slot] + more
end

-- A message of a conversation begins. Without a branch for the first ones: where this is noted is known beforehand.
local function begin_message(first)
  finish_turn(turns_of)
  begin_turn(turns_of, TOOL)
  local slot = tally.slot
  if tally.items[slot] == 0 then
    tally.start_at, tally.start[AFTER_USER], tally.user_item = FIRST, -1, 0
    tally.conversation = slot
  end
  tally.start[tally.start_at], tally.start_at = first, OTHER
  count_item(1)
end

local function note_role(p, first, last)
  local role = read_role(turns_of, p, first, last)
  if tally.user_item == 0 and role == USER then
    tally.user_item = tally.items[tally.slot]
    tally.start_at = AFTER_USER
  end
end

--- What `json.walk` calls at a string of interest.
function _M.on_string(at, p, first, last)
  local code = at.code
  if code == TEXT then
    count_text(p, first, last)
  elseif code == ROLE then
    note_role(p, first, last)
  elseif code == MEDIA then
    local slot = tally.slot
    tally.media[slot] = tally.media[slot] + 1
  elseif code == ITEM then
    count_item(1)
    tally.conversation = tally.slot
    count_message(p, first, last, USER)
  elseif code == INPUT then
    tally.conversation = tally.slot
    count_message(p, first, last, USER)
  elseif code == INSTRUCTIONS then
    count_message(p, first, last, SYSTEM)
  end
end

--- What it calls at an object or array of interest.
function _M.on_open(at, _, first)
  if at.code == MESSAGE then
    begin_message(first)
  else
    count_item(1)
  end
end

--- What it calls at numbers of interest: token ids.
function _M.on_count(at, count)
  local slot = tally.slot
  tally.tokens[slot] = tally.tokens[slot] + count
  if at.code == ITEM and tally.items[slot] == 0 then
    tally.items[slot] = 1
  end
end

local words = ffi.typeof("const uint64_t *")

-- The eight bytes of a text as the number that they are where they stand.
local function word_of(text)
  return cast(words, bytes.of(text))[0]
end
local ROLE_IS, CONTENT = word_of '{"role":', word_of '"content'
-- Beyond the role: a quote, a comma, the name of the content and the quote of its value, with a space behind each one.
local BETWEEN = 16
-- As much of a message as is looked at in any case.
local OPENING = 10

-- Where the quote stands that is at `i` or, behind a space, one farther. No branch: both of its ways would be compiled.
-- (Of the two signs the quote has the second bit set.)
local function quote_at(p, i)
  return i + 1 - band(rshift(p[i], 1), 1)
end

--- What it calls at an object before that: nearly every message is written `{"role": "user", "content": "..."}`, with
-- these spaces or without any, and is then read at once.
-- @return the offset behind the object, or 0 where it is not
function _M.on_whole(_, p, i, n)
  if i + OPENING > n or cast(words, p + i)[0] ~= ROLE_IS then
    return 0
  end
  local role_first = quote_at(p, i + 8) + 1
  local role_last = string_end(p, role_first, n)
  if p[role_first - 1] ~= QUOTE or role_last < 0 or role_last + BETWEEN > n or p[role_last + 1] ~= COMMA then
    return 0
  end
  local name = quote_at(p, role_last + 2)
  local first = quote_at(p, name + 10) + 1
  if cast(words, p + name)[0] ~= CONTENT or p[name + 8] ~= QUOTE or p[name + 9] ~= COLON or p[first - 1] ~= QUOTE then
    return 0
  end
  local last = string_end(p, first, n)
  if last < 0 or p[last + 1] ~= CLOSE_OBJECT then
    return 0
  end
  begin_message(i)
  note_role(p, role_first, role_last)
  count_text(p, first, last)
  return last + 2
end

--- Text wherever it stands below, except under the names that hold media or labels.
local text = node { code = TEXT, string = true }
local role = node { code = ROLE, string = true }
local media = node { code = MEDIA, string = true, other = NOTHING }
-- {"image_url": "data:..."} and {"image_url": {"url": "data:...", "detail": "low"}}
media.children = members { url = media, data = media }
text.other, text.each = text, text
text.children = members {
  content = text, text = text,
  role = role,
  type = NOTHING, id = NOTHING, call_id = NOTHING, tool_call_id = NOTHING, status = NOTHING,
  detail = NOTHING, format = NOTHING, media_type = NOTHING, cache_control = NOTHING,
  image_url = media, video_url = media, audio_url = media, url = media, image = media, image_embeds = media,
  data = media, file_data = media, b64_json = media,
  file_id = NOTHING, filename = NOTHING, uuid = NOTHING, encrypted_content = NOTHING,
}
_M.TEXT = text

-- An element of a conversation: a text's names with a counter on it.
local message = node { code = MESSAGE, open = true, whole = true, children = text.children, other = text, each = text }

--- `messages`, and `input` of responses: a string, as if of the user, or a list of messages or items.
_M.CONVERSATION = node { code = INPUT, string = true, each = message, other = text }

--- `instructions` of responses: a system message.
_M.INSTRUCTIONS = node { code = INSTRUCTIONS, string = true, each = text, other = text }

--- `tools`: how many there are.
_M.TOOLS = node { each = node { code = DEFINITION, open = true } }

-- Token ids in a list of lists, and the elements of a list of prompts.
local token = node { code = TOKEN, count = true }
local item = node { code = ITEM, string = true, count = true, open = true, each = token, other = text }
item.children = text.children
token.each = token

--- `prompt`, and `input` of embeddings: a string, a list of strings, of token ids, or of lists of token ids.
_M.PROMPTS = node { code = ITEM, string = true, each = item }

return _M
