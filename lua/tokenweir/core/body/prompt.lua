--- Which bytes of a request body the model reads, counted while `json.walk` passes over them.
--
-- A string counts unless it stands under a name that holds media (image, audio, file: their base64 is not text) or
-- that only labels (`role`, `type`, identifiers). The rule excludes by name, not by value: a user may write a text that
-- begins with "data:". What counts is the size of the text as UTF-8, with JSON's escapes undone, because a client that
-- writes "\u4e2d" for a three-byte character sends twice the bytes and the same tokens.
local ffi = require "ffi"
local bytes = require "tokenweir.core.bytes"
local nodes = require "tokenweir.core.json.node"
local prefix_blocks = require "tokenweir.core.body.prefix_blocks"
local turns = require "tokenweir.core.body.turns"

local floor = math.floor
local ffi_new, ffi_fill = ffi.new, ffi.fill
local find = bytes.find
local feed_blocks = prefix_blocks.feed
local begin_turn, clear_turns, finish_turn, note_text = turns.begin, turns.clear, turns.finish, turns.text
local read_role = turns.read_role
local SYSTEM, TOOL, USER = turns.SYSTEM, turns.TOOL, turns.USER
local node, members, NOTHING = nodes.new, nodes.members, nodes.NOTHING

local BACKSLASH = 92

-- Escapes are counted in the first bytes of each string and extrapolated: 512 bytes hold the alphabet of a text, and a
-- long body of code would otherwise cost more for its line feeds than for all the rest. Past 4 KiB in all, 64 each.
local SAMPLE, SAMPLE_LATER, SAMPLE_ENOUGH = 512, 64, 4096

local TEXT, MEDIA, ROLE, MESSAGE, ITEM, TOKEN, INSTRUCTIONS, INPUT, DEFINITION = 1, 2, 3, 4, 5, 6, 7, 8, 9

local _M = {}

--- Number of members of one body that can hold prompt text (1-based slots).
local SLOTS = 8
_M.SLOTS = SLOTS

-- Bytes that JSON spends on the escapes that begin in [first, limit) beyond what they stand for, and the offset up to
-- which that was looked at: the last one may reach over the limit.
local function escape_excess(p, first, limit, last)
  local excess, from = 0, first
  local at = find(p, BACKSLASH, first, limit)
  while at >= 0 do
    if p[at + 1] ~= 117 then
      excess = excess + 1
      from = at + 2
    elseif at + 6 > last then
      return excess, last
    else
      local a, b, c = p[at + 2], p[at + 3], p[at + 4]
      if a == 48 and b == 48 and c < 56 then
        excess = excess + 5
      elseif a == 48 and b < 56 or (a == 68 or a == 100) and b > 55 then
        -- Two bytes; a surrogate is half of a character of four.
        excess = excess + 4
      else
        excess = excess + 3
      end
      from = at + 6
    end
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

--- Counters of one request, one set a slot. Reused from request to request.
-- `text` bytes, `tokens` given as numbers, `items` (messages, prompts or tools), `media` parts; `turns` of the
-- conversation; `blocks` of its beginnings.
function _M.new_tally()
  return {
    slot = 0,
    sampled = 0,
    text = ffi_new("double[?]", SLOTS + 1),
    tokens = ffi_new("double[?]", SLOTS + 1),
    items = ffi_new("double[?]", SLOTS + 1),
    media = ffi_new("double[?]", SLOTS + 1),
    opening_first = -1,
    opening_limit = -1,
    user_item = 0,
    turns = turns.new(),
    -- Outlives the request's body: its end has to find them.
    blocks = prefix_blocks.new(),
    -- The slot that the conversation stands in.
    conversation = 0,
  }
end

--- Makes the tally ready for the next request.
function _M.clear(tally)
  local size = 8 * (SLOTS + 1)
  tally.slot, tally.sampled = 0, 0
  ffi_fill(tally.text, size)
  ffi_fill(tally.tokens, size)
  ffi_fill(tally.items, size)
  ffi_fill(tally.media, size)
  tally.opening_first, tally.opening_limit, tally.user_item = -1, -1, 0
  tally.conversation = 0
  clear_turns(tally.turns)
end

--- Begins (again) to count the member of this slot: of duplicates the last one counts.
function _M.begin(tally, slot)
  finish_turn(tally.turns)
  if tally.conversation == slot then
    clear_turns(tally.turns)
  end
  tally.slot = slot
  tally.text[slot], tally.tokens[slot], tally.items[slot], tally.media[slot] = 0, 0, 0, 0
end

local function count_text(tally, p, first, last)
  local slot = tally.slot
  local sample = tally.sampled < SAMPLE_ENOUGH and SAMPLE or SAMPLE_LATER
  local raw = last - first
  tally.sampled = tally.sampled + (raw < sample and raw or sample)
  local size = text_size(p, first, last, sample)
  tally.text[slot] = tally.text[slot] + size
  note_text(tally.turns, first, last, size)
  feed_blocks(tally.blocks, p, first, last)
end

-- A text that is a message by itself.
local function count_message(tally, p, first, last, role)
  finish_turn(tally.turns)
  begin_turn(tally.turns, role)
  count_text(tally, p, first, last)
  finish_turn(tally.turns)
end

--- What `json.walk` calls at a string of interest.
function _M.on_string(tally, at, p, first, last)
  local code = at.code
  if code == TEXT then
    count_text(tally, p, first, last)
  elseif code == ROLE then
    local role = read_role(tally.turns, p, first, last)
    if tally.user_item == 0 and role == USER then
      tally.user_item = tally.items[tally.slot]
    end
  elseif code == MEDIA then
    tally.media[tally.slot] = tally.media[tally.slot] + 1
  elseif code == ITEM then
    tally.items[tally.slot] = tally.items[tally.slot] + 1
    tally.conversation = tally.slot
    count_message(tally, p, first, last, USER)
  elseif code == INPUT then
    tally.conversation = tally.slot
    count_message(tally, p, first, last, USER)
  elseif code == INSTRUCTIONS then
    count_message(tally, p, first, last, SYSTEM)
  end
end

--- What it calls at an object or array of interest.
function _M.on_open(tally, at, _, first)
  local slot = tally.slot
  local items = tally.items[slot]
  if at.code == MESSAGE then
    finish_turn(tally.turns)
    begin_turn(tally.turns, TOOL)
    -- The opening of a conversation, which later turns repeat: everything through the first message of the user.
    if items == 0 then
      tally.opening_first, tally.opening_limit, tally.user_item = first, -1, 0
      tally.conversation = slot
    elseif items == tally.user_item and tally.opening_limit < 0 then
      tally.opening_limit = first
    end
  end
  tally.items[slot] = items + 1
end

--- What it calls at numbers of interest: token ids.
function _M.on_count(tally, at, count)
  local slot = tally.slot
  tally.tokens[slot] = tally.tokens[slot] + count
  if at.code == ITEM and tally.items[slot] == 0 then
    tally.items[slot] = 1
  end
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
local message = node { code = MESSAGE, open = true, children = text.children, other = text, each = text }

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
