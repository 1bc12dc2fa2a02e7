--- Running figures of past outputs by key, system prompt or session, in a table of fixed size.
--
-- A row holds the mean and variance of ln(1 + output tokens), each completion weighing less with every later one, and
-- how the predictions came out: sums of outputs and of predicted means, corrections of the quantiles. Rows stand in
-- sets of four; in a full set the one unused for longest gives way, so the table neither grows nor is ever searched.
local ffi = require "ffi"

local max = math.max
local cast = ffi.cast

ffi.cdef [[
typedef struct {
  double key, used;
  float count, mean, variance, last;
  float actual, predicted;
  float median_shift, q90_shift;
} tw_past;
]]

local WAYS = 4
local LIST = ffi.typeof("tw_past[?]")
local POINTER = ffi.typeof("tw_past *")

local _M = {}

--- @tparam number sets a power of two; four rows each
-- @tparam number window completions that count: the weight of one falls to 1/e after so many
-- @treturn table `rows` (tw_past[]), `sets`, `window`, `size`
function _M.new(sets, window)
  return { rows = LIST(sets * WAYS), sets = sets, window = window, size = sets * WAYS }
end

-- The four places of a set are named one by one: a loop would keep the path of a request out of compiled code.
local function place(rows, first, key)
  return rows[first].key == key and first or rows[first + 1].key == key and first + 1
    or rows[first + 2].key == key and first + 2 or rows[first + 3].key == key and first + 3 or nil
end

-- Of two places the one unused for longer.
local function older(rows, a, b)
  return rows[b].used < rows[a].used and b or a
end

--- The row of a key, or nil.
-- @tparam number key of `identity.lua`; 0 is nobody's
-- @return tw_past *, valid until the next `touch`
function _M.find(history, key)
  local rows = history.rows
  local first = key % history.sets * WAYS
  local at = place(rows, first, key)
  return at and cast(POINTER, rows + at)
end

--- The row of a key, made where there is none. @return tw_past *
function _M.touch(history, key, now)
  local rows = history.rows
  local first = key % history.sets * WAYS
  local at = place(rows, first, key)
  if at then
    rows[at].used = now
    return (cast(POINTER, rows + at))
  end
  local oldest = older(rows, older(rows, first, first + 1), older(rows, first + 2, first + 3))
  local row = rows[oldest]
  ffi.fill(row, ffi.sizeof("tw_past"))
  row.key, row.used = key, now
  return (cast(POINTER, rows + oldest))
end

--- Adds one output to a row.
-- @param row tw_past
-- @tparam number window see `new`
-- @tparam number value ln(1 + output tokens)
function _M.add(row, window, value)
  local count = row.count + 1
  local weight = max(1 / count, 1 / window)
  local delta = value - row.mean
  row.count, row.last = count, value
  row.mean = row.mean + weight * delta
  row.variance = (1 - weight) * (row.variance + weight * delta * delta)
end

--- Adds how a prediction of the mean came out, both in tokens.
function _M.compare(row, window, actual, predicted)
  local keep = 1 - 1 / window
  row.actual, row.predicted = keep * row.actual + actual, keep * row.predicted + predicted
end

--- The mean of a row drawn towards what its parent says, which counts as `strength` completions.
-- @param row tw_past * or nil
function _M.shrunk(row, parent, strength)
  if row == nil then
    return parent
  end
  local count = row.count
  return (count * row.mean + strength * parent) / (count + strength)
end

return _M
