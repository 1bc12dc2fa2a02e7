--- Hashes of a prompt's beginnings, taken while the body is read: two prompts that begin alike share the first of them.
-- They end at fixed numbers of bytes, close together at first and then farther apart: 64 of them reach over 1.3 MB.
--
-- What is hashed is the text as JSON has it, piece by piece: a client that writes the same text always writes it alike.
local ffi = require "ffi"
local fixed_array = require "tokenweir.core.fixed_array"
local hash = require "tokenweir.core.hash"

local feed_hash, hash_state = hash.feed, hash.state
local copy = ffi.copy

--- Blocks of a prompt of 4 KB.
local FEW = 4

local DEFINITION = [[
typedef struct {
  int32_t count;                   /* whole blocks */
  double bytes, end_at;            /* read so far; where the present block ends */
  uint64_t running;                /* of everything but what is held */
  const uint8_t *held;             /* the end of the last text, which is hashed once more text follows */
  double held_size;                /* -1: nothing is held */
  uint64_t hash[64];               /* of everything up to the end of each block */
  double bytes_to[64];             /* where each block ends */
} tw_prefix_blocks;
typedef struct {                   /* the same of a short prompt, as far as it is read after the body was */
  int32_t count;
  double bytes;
  uint64_t hash[FEW];
  double bytes_to[FEW];
} tw_few_prefix_blocks;
]]

ffi.cdef((DEFINITION:gsub("FEW", FEW)))

--- Blocks of each size, and the sizes in bytes.
local MOST, OF_A_SIZE, FIRST = 64, 16, 1024

local few = ffi.typeof("tw_few_prefix_blocks")
local sizes = fixed_array.new("double", MOST + 1)
for k = 0, MOST - 1 do
  sizes[k] = FIRST * 4 ^ ((k - k % OF_A_SIZE) / OF_A_SIZE)
end
-- Nothing reaches the end of a block after the last.
sizes[MOST] = 2 ^ 53

local _M = { MOST = MOST, SIZE = ffi.sizeof("tw_prefix_blocks") }

--- @return tw_prefix_blocks, empty
function _M.new()
  local blocks = ffi.new("tw_prefix_blocks")
  _M.clear(blocks)
  return blocks
end

--- Room for `keep`.
function _M.new_few()
  return few()
end

--- A copy that takes as little memory as it can, to be read only.
-- @param[opt] room of `new_few`, where the copy is to be
-- @return a table-like of `count`, `bytes`, `hash` and `bytes_to`; the blocks themselves where they are many
function _M.keep(blocks, room)
  local count = blocks.count
  if count > FEW then
    return blocks
  end
  local kept = room or few()
  kept.count, kept.bytes = count, blocks.bytes
  -- All that there is room for: without a call, as its size is known.
  copy(kept.hash, blocks.hash, 8 * FEW)
  copy(kept.bytes_to, blocks.bytes_to, 8 * FEW)
  return kept
end

--- Takes over other blocks.
function _M.take(blocks, from)
  local count = from.count
  blocks.count, blocks.bytes = count, from.bytes
  copy(blocks.hash, from.hash, 8 * count)
  copy(blocks.bytes_to, from.bytes_to, 8 * count)
end

--- Makes the blocks ready for another prompt.
function _M.clear(blocks)
  blocks.count, blocks.bytes, blocks.end_at, blocks.running, blocks.held_size = 0, 0, FIRST, 0, -1
end

local function hash_on(blocks, p, first, size)
  hash_state[0] = blocks.running
  feed_hash(p, first, size)
  blocks.running = hash_state[0]
end

-- Takes of a text the blocks that end in it; returns where the rest begins. Calls itself for the next block: LuaJIT
-- gives a loop up that mostly runs once.
local function cross(blocks, p, first, last)
  local count = blocks.count
  local piece = blocks.end_at - blocks.bytes
  if last - first < piece then
    return first
  end
  hash_on(blocks, p, first, piece)
  blocks.bytes = blocks.end_at
  blocks.hash[count], blocks.bytes_to[count] = blocks.running, blocks.end_at
  blocks.count = count + 1
  blocks.end_at = blocks.end_at + sizes[count + 1]
  return cross(blocks, p, first + piece, last)
end

--- Goes on with the text at `[first, last)` of `p`, which must stay there until the next one.
function _M.feed(blocks, p, first, last)
  if blocks.held_size >= 0 then
    hash_on(blocks, blocks.held, 0, blocks.held_size)
  end
  if last - first >= blocks.end_at - blocks.bytes then
    first = cross(blocks, p, first, last)
  end
  -- What comes after the last block is not hashed, nor what may be the end of the prompt: no block ends in it.
  blocks.held, blocks.held_size = p + first, blocks.count < MOST and last - first or -1
  blocks.bytes = blocks.bytes + (last - first)
end

--- Adds a block that was hashed elsewhere, whose end is so far from the beginning (in whatever unit `bytes` has).
function _M.add(blocks, hash_to, bytes_to)
  local count = blocks.count
  if count < MOST then
    blocks.hash[count], blocks.bytes_to[count] = hash_to, bytes_to
    blocks.count = count + 1
  end
  if bytes_to > blocks.bytes then
    blocks.bytes = bytes_to
  end
end

--- The blocks as bytes, for a worker thread to hand over; and back.
function _M.dump(blocks)
  return ffi.string(blocks, _M.SIZE)
end

function _M.load(blocks, dumped)
  copy(blocks, dumped, _M.SIZE)
end

return _M
