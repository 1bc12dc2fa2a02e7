--- One backend's load, as one worker reserved it, and the arithmetic on it.
--
-- A row (`tw_load`) is written by one worker only and summed by all. Every figure is a whole number in a double, so
-- sums are exact below 2^53 and come back to exactly zero whatever the order of additions and removals.
--
--   n          sequences in flight (a request with n choices is n sequences)
--   held       KV tokens they hold now: prompt and what was produced so far
--   remaining  tokens they are still expected to produce
--   variance   sum of the squared standard deviations of their lengths (tokens^2)
--   prefill    prompt tokens not yet processed, less what the backend has cached of them
--   flowing    streams of which a byte has come
--   bucket_*   n, held and variance by the remaining tokens of each sequence (`bucket.lua`)
--
-- For policies a ledger sums the rows of a backend into `view.load[i]` (i: index in the fleet). The six totals are
-- always filled. The buckets matter only where memory is tight, so they are summed on demand: a policy that needs
-- them calls `view.fill_buckets(i)` where the ledger supplies it, which completes `bucket_*` of `view.load[i]`
-- with the same sources as its totals. A view without that function has its buckets filled already. Buckets that
-- do not account for all n sequences are never believed (`peak.lua` then takes `held + remaining`).
local ffi = require "ffi"
local bucket = require "tokenweir.core.backend.bucket"
local demand = require "tokenweir.core.backend.demand"

local ceil, floor = math.ceil, math.floor
local bucket_of, measure, whole = bucket.of, demand.measure, demand.whole
local MAX_SEQUENCES, MAX_TOKENS = demand.MAX_SEQUENCES, demand.MAX_TOKENS

ffi.cdef [[
typedef struct {
  double n, held, remaining, variance, prefill, flowing;
  double bucket_n[13], bucket_held[13], bucket_variance[13];
  double pad[3];
} tw_load;
]]

local SIZE = ffi.sizeof("tw_load")
local DOUBLES = SIZE / 8
local LIST = ffi.typeof("tw_load[?]")
local POINTER = ffi.typeof("double *")

--- A request that outlives its prediction is expected to go on for this share of what it has produced: lengths are
-- heavy-tailed, so the longer a request has run, the longer it is likely to run on.
local RESIDUAL = 0.25

local _M = { SIZE = SIZE, DOUBLES = DOUBLES, RESIDUAL = RESIDUAL }

--- Tokens that each sequence is still expected to produce after `each` tokens of its own.
local function remaining_after(r, each)
  local left = r.expected - each
  local residual = ceil(RESIDUAL * each)
  if residual > left then
    left = residual
  end
  local most = r.most - each
  if left > most then
    left = most
  end
  return left > 0 and left or 0
end

local function end_prefill(row, r)
  if r.prefill > 0 then
    row.prefill = row.prefill - r.prefill
    r.prefill = 0
  end
end

--- A new zeroed array of rows, valid at 0 .. count. It must be kept: a row of it does not keep it alive.
function _M.new(count)
  return LIST(count + 1)
end

--- Adds a request to a row. Does nothing for a request that is reserved already.
-- @param row tw_load
-- @param r table; read: what `demand.measure` reads; written: what it writes, `tokens` (produced so far, all
--   sequences),
--   and what the row holds of it: `held`, `remaining`, `variance`, `bucket`, `prefill`, `flowing`, `reserved`
-- @return boolean whether it was added
function _M.reserve(row, r)
  if r.reserved then
    return false
  end
  measure(r, r)
  local n, prompt, remaining, variance = r.n, r.prompt, r.remaining, r.variance
  local b = bucket_of(r.expected)
  -- What the backend has cached it need not compute.
  local computed = whole(prompt - (r.reckoned or 0), MAX_TOKENS)
  r.tokens, r.held, r.bucket, r.prefill, r.flowing = 0, prompt, b, computed, 0
  r.reserved = true

  row.bucket_n[b] = row.bucket_n[b] + n
  row.bucket_held[b] = row.bucket_held[b] + prompt
  row.bucket_variance[b] = row.bucket_variance[b] + variance
  row.n = row.n + n
  row.held = row.held + prompt
  row.remaining = row.remaining + remaining
  row.variance = row.variance + variance
  row.prefill = row.prefill + computed
  return true
end

--- The prompt has been processed, as far as can be told (a request that does not stream shows no first token).
function _M.prefilled(row, r)
  if r.reserved then
    end_prefill(row, r)
  end
end

--- The backend was brought a part of the prompt's cache: less of it is to be computed.
-- @param cached tokens that it has now
function _M.brought(row, r, cached)
  local computed = whole(r.prompt - cached, MAX_TOKENS)
  if r.reserved and computed < r.prefill then
    row.prefill = row.prefill - (r.prefill - computed)
    r.prefill = computed
  end
end

--- The first byte of a stream has come: its prompt leaves `prefill`, the stream flows.
function _M.first_token(row, r)
  if not r.reserved then
    return
  end
  end_prefill(row, r)
  if r.flowing == 0 then
    row.flowing = row.flowing + 1
    r.flowing = 1
  end
end

--- A request has produced so many tokens, all of its sequences together. Fewer than before are not counted back.
function _M.progress(row, r, tokens_so_far)
  if not r.reserved then
    return
  end
  local tokens = whole(tokens_so_far, MAX_TOKENS)
  if tokens <= r.tokens then
    return
  end
  end_prefill(row, r)
  local n = r.n
  local each = remaining_after(r, floor(tokens / n))
  local held, remaining = r.prompt + tokens, n * each
  local b, old = bucket_of(each), r.bucket
  if b == old then
    row.bucket_held[b] = row.bucket_held[b] + (held - r.held)
  else
    -- Into the new bucket first: a reader in between sees too much rather than too little.
    row.bucket_n[b] = row.bucket_n[b] + n
    row.bucket_held[b] = row.bucket_held[b] + held
    row.bucket_variance[b] = row.bucket_variance[b] + r.variance
    row.bucket_n[old] = row.bucket_n[old] - n
    row.bucket_held[old] = row.bucket_held[old] - r.held
    row.bucket_variance[old] = row.bucket_variance[old] - r.variance
  end
  row.held = row.held + (held - r.held)
  row.remaining = row.remaining + (remaining - r.remaining)
  r.tokens, r.held, r.remaining, r.bucket = tokens, held, remaining, b
end

--- The prediction of a request has changed: what it is expected to produce is measured anew. What it holds stays.
-- @param r read besides: what `demand.measure` reads
function _M.refine(row, r)
  if not r.reserved then
    return
  end
  local n, held, old, remaining, variance = r.n, r.held, r.bucket, r.remaining, r.variance
  measure(r, r)
  local each = remaining_after(r, floor(r.tokens / n))
  local b = bucket_of(each)
  row.bucket_n[b] = row.bucket_n[b] + n
  row.bucket_held[b] = row.bucket_held[b] + held
  row.bucket_variance[b] = row.bucket_variance[b] + r.variance
  row.bucket_n[old] = row.bucket_n[old] - n
  row.bucket_held[old] = row.bucket_held[old] - held
  row.bucket_variance[old] = row.bucket_variance[old] - variance
  row.remaining = row.remaining + (n * each - remaining)
  row.variance = row.variance + (r.variance - variance)
  r.remaining, r.bucket = n * each, b
end

--- Takes off exactly what the request added. Does nothing for one that is not reserved.
-- @return boolean whether something was taken off
function _M.release(row, r)
  if not r.reserved then
    return false
  end
  r.reserved = false
  local b = r.bucket
  row.n = row.n - r.n
  row.held = row.held - r.held
  row.remaining = row.remaining - r.remaining
  row.variance = row.variance - r.variance
  row.prefill = row.prefill - r.prefill
  row.flowing = row.flowing - r.flowing
  row.bucket_n[b] = row.bucket_n[b] - r.n
  row.bucket_held[b] = row.bucket_held[b] - r.held
  row.bucket_variance[b] = row.bucket_variance[b] - r.variance
  r.prefill, r.flowing = 0, 0
  return true
end

--- Adds the six totals of `row` to `into`.
function _M.add_totals(into, row)
  into.n = into.n + row.n
  into.held = into.held + row.held
  into.remaining = into.remaining + row.remaining
  into.variance = into.variance + row.variance
  into.prefill = into.prefill + row.prefill
  into.flowing = into.flowing + row.flowing
end

--- Makes the six totals of `into` those of `row`.
function _M.copy_totals(into, row)
  into.n, into.held, into.remaining = row.n, row.held, row.remaining
  into.variance, into.prefill, into.flowing = row.variance, row.prefill, row.flowing
end

--- Adds the buckets of `row` to `into`.
function _M.add_buckets(into, row)
  for b = 0, bucket.LAST do
    into.bucket_n[b] = into.bucket_n[b] + row.bucket_n[b]
    into.bucket_held[b] = into.bucket_held[b] + row.bucket_held[b]
    into.bucket_variance[b] = into.bucket_variance[b] + row.bucket_variance[b]
  end
end

--- Adds a whole row to `into`: totals and buckets.
function _M.add(into, row)
  local to, from = ffi.cast(POINTER, into), ffi.cast(POINTER, row)
  for k = 0, DOUBLES - 1 do
    to[k] = to[k] + from[k]
  end
end

--- Adds requests of which only number and tokens are known (foreign load: they did not come through a gateway).
-- Each is taken to be still going to produce `each` tokens.
-- @param requests whole number; @param tokens that they hold; @param each remaining tokens of one, its deviation too
function _M.add_foreign(into, requests, tokens, each)
  local n, held = whole(requests, MAX_TOKENS), whole(tokens, MAX_TOKENS * MAX_SEQUENCES)
  local left = whole(each, MAX_TOKENS)
  local b = bucket_of(left)
  local variance = n * left * left
  into.n = into.n + n
  into.held = into.held + held
  into.remaining = into.remaining + n * left
  into.variance = into.variance + variance
  into.bucket_n[b] = into.bucket_n[b] + n
  into.bucket_held[b] = into.bucket_held[b] + held
  into.bucket_variance[b] = into.bucket_variance[b] + variance
end

--- Zeroes a whole row.
function _M.clear(row)
  ffi.fill(row, SIZE)
end

--- Zeroes the buckets of a row.
function _M.clear_buckets(row)
  for b = 0, bucket.LAST do
    row.bucket_n[b], row.bucket_held[b], row.bucket_variance[b] = 0, 0, 0
  end
end

return _M
