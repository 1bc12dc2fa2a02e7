--- What one request asks of a backend, in whole tokens: the one place where predictions are rounded and bounded,
-- so that a policy reckons with exactly what a reservation will add (`load.lua`).
local ceil = math.ceil

-- Bounds that keep the sums of a hundred thousand requests exact in doubles.
local MAX_SEQUENCES = 1024
local MAX_TOKENS = 2 ^ 24
local MAX_VARIANCE = 2 ^ 36

local _M = { MAX_SEQUENCES = MAX_SEQUENCES, MAX_TOKENS = MAX_TOKENS, MAX_VARIANCE = MAX_VARIANCE }

--- The least whole number >= x within 0 .. most; 0 for what is no number.
local function whole(x, most)
  if not x or x ~= x or x <= 0 then
    return 0
  end
  if x > most then
    return most
  end
  return (ceil(x))
end
_M.whole = whole

--- @param request table; read: `n` (sequences), `prompt` (tokens), `mean` and `sd` (of one sequence's output, tokens),
--   `max_tokens` or nil (most output tokens of one sequence). Anything missing or not finite becomes a bound.
-- @param out table (it may be the request); written: `n`, `prompt`, `expected` (output of one sequence, >= 1), `most`
--   (bound of it), `remaining` (of all sequences), `variance` (tokens^2)
function _M.measure(request, out)
  local n = whole(request.n, MAX_SEQUENCES)
  if n < 1 then
    n = 1
  end
  local most = whole(request.max_tokens, MAX_TOKENS)
  if most < 1 then
    most = MAX_TOKENS
  end
  local expected = whole(request.mean, most)
  if expected < 1 then
    expected = 1
  end
  -- What the prediction gets wrong about a prompt it gets wrong for all of its choices.
  local deviation = n * whole(request.sd, MAX_TOKENS)
  local variance = deviation * deviation
  if variance > MAX_VARIANCE then
    variance = MAX_VARIANCE
  end
  out.n, out.prompt, out.expected, out.most = n, whole(request.prompt, MAX_TOKENS), expected, most
  out.remaining, out.variance = n * expected, variance
end

return _M
