--- The most KV tokens that a backend's requests are predicted to hold at one time.
--
-- With the requests sorted by predicted remaining tokens, longest first, and `held` what each holds now:
--   peak = max over k of (sum of held over the k longest + k * remaining_k)
-- for when the k-th ends, the k - 1 longer ones have grown by as much as it has, and the shorter ones are gone.
-- Summed rows know the requests by bucket of remaining tokens only, so each counts at its bucket's upper end: the
-- figure is never below the exact peak, and never above `held + remaining`, which bounds it too.
local bucket = require "tokenweir.core.backend.bucket"

local sqrt = math.sqrt
local bucket_of, upper, lower, LAST = bucket.of, bucket.upper, bucket.lower, bucket.LAST

local _M = {}

--- The cheap upper bound: everything ends at the same time. Needs the totals only.
-- @param row tw_load, summed; @param own what a new request asks (`demand.measure`), counted in
-- @return number KV tokens
local function bound(row, own)
  return row.held + row.remaining + own.prompt + own.remaining
end
_M.bound = bound

--- The peak by buckets. Needs the buckets of `row`; buckets that do not account for all sequences are not believed.
-- @return number KV tokens, at most `bound(row, own)`
function _M.walk(row, own)
  local at_once = bound(row, own)
  local own_bucket = bucket_of(own.expected)
  local rest = row.remaining + own.remaining  -- less the least that the closed buckets can have: the open one's share
  local n, held, most = 0, 0, 0
  for b = 0, LAST - 1 do
    rest = rest - row.bucket_n[b] * lower[b]
  end
  if own_bucket < LAST then
    rest = rest - own.n * lower[own_bucket]
  end
  for b = LAST, 0, -1 do
    local here = row.bucket_n[b]
    held = held + row.bucket_held[b]
    if b == own_bucket then
      here = here + own.n
      held = held + own.prompt
    end
    if here > 0 then
      n = n + here
      local at
      if b == LAST then
        at = held + (rest > 0 and rest or 0)
      else
        at = held + n * upper[b]
      end
      if at > most then
        most = at
      end
    end
  end
  if n < row.n + own.n or most > at_once then
    return at_once
  end
  return most
end

--- The standard deviation of the tokens still to come, with a new request counted in.
-- Independent errors add up as variances; the error that all predictions of one model share goes with their sum.
-- @param common relative: the recent deviation of the whole from its prediction
function _M.deviation(row, own, common)
  local shared = common * (row.remaining + own.remaining)
  return (sqrt(row.variance + own.variance + shared * shared))
end

return _M
