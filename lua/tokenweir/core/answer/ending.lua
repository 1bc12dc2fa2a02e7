--- How answers end: an engine ends each in the same bytes, but for the finish reason and some whole numbers.
--
--     if not ending.read(state, p, size) then
--       ... read the answer as what it may be ...
--       ending.learn(p, reason, value, last, usage, size)
--     end
--
-- From the finish reason on, an answer is compared, from its end backwards, with how others ended: constant texts, and
-- a number before each. That takes a few comparisons instead of searches and a walk through JSON. What an ending means
-- is found out once, by that walk.
local ffi = require "ffi"
local answer = require "tokenweir.core.answer.answer"
local bit = require "bit"
local bytes = require "tokenweir.core.bytes"
local fixed_array = require "tokenweir.core.fixed_array"
local fresh = require "tokenweir.core.fresh"
local json = fresh.load "tokenweir.core.json.walk"
local scalar = require "tokenweir.core.json.scalar"
local string_end = require("tokenweir.core.json.quote").string_end

local ROOT, COMPLETION_TOKENS = answer.ROOT, answer.COMPLETION_TOKENS
local PROMPT_TOKENS, CACHED_TOKENS = answer.PROMPT_TOKENS, answer.CACHED_TOKENS
local band, bnot, bor, bxor, rshift = bit.band, bit.bnot, bit.bor, bit.bxor, bit.rshift
local cast, ffi_copy = ffi.cast, ffi.copy
local is_digit, number_end = scalar.is_digit, scalar.number_end
local same = bytes.same
local pairs, tonumber, type = pairs, tonumber, type
local int, word = ffi.typeof("int32_t"), ffi.typeof("const uint64_t *")

local QUOTE, MINUS, ZERO = 34, 45, 48

--- Endings that are remembered; the latest that was learned takes the place of the oldest.
local FORMS = 4
--- Of one ending: most numbers, most bytes of texts.
local MOST_NUMBERS, MOST_TEXT = 12, 512
--- Most digits of a number, and what a reader looks back for one.
local MOST_DIGITS, WORD = 7, 8
--- Of answers that end like none that is known one in so many is learned: engines that end each one differently, as by
-- its id, must not make all others forgotten, nor all of their own dearer.
local LEARN_EVERY = 16

-- By form: how many numbers there are, and how many bytes all of it has at most. By form and text, from the last one
-- to that behind the finish reason: its size, and what the number before it is (0: nothing that is asked for).
-- A form that is not known has more than any answer.
local NEVER = 2 ^ 31 - 1
local count, most = fixed_array.new("int32_t", FORMS), fixed_array.new("int32_t", FORMS, { NEVER, NEVER, NEVER, NEVER })
local sizes = fixed_array.new("int32_t", FORMS * (MOST_NUMBERS + 1))
local codes = fixed_array.new("int32_t", FORMS * (MOST_NUMBERS + 1))
-- Those texts one after another; and what stands before the finish reason.
local texts = fixed_array.new("uint8_t", FORMS * MOST_TEXT)
local openings = fixed_array.new("uint8_t", FORMS * MOST_TEXT)
local opening_size = fixed_array.new("int32_t", FORMS)
-- By form and code: whether it has such a number.
local CODES = CACHED_TOKENS + 1
local has = fixed_array.new("uint8_t", FORMS * CODES)
-- The numbers of the answer at hand, by code.
local values = fixed_array.new("double", CODES)

-- The form that was met last; how many there are; where the next one goes; answers that ended like none of them.
local latest, known, place, missed = fixed_array.new("int32_t", 1), 0, 0, 0

local _M = { LEARN_EVERY = LEARN_EVERY }

-- The word of eight bytes that ends before `at`, each byte less "0"; and a mask of those that belong to no number which
-- ends there. The last byte stands highest.
local function digits_before(p, at)
  local x = bxor(cast(word, p + (at - WORD))[0], 0x3030303030303030ULL)
  -- The highest bit of each byte that is above 9, and of all before one.
  local others = band(bor(band(x, 0x7F7F7F7F7F7F7F7FULL) + 0x7676767676767676ULL, x), 0x8080808080808080ULL)
  others = bor(others, rshift(others, 8))
  others = bor(others, rshift(others, 16))
  others = rshift(bor(others, rshift(others, 32)), 7)
  return x, others
end

-- How many bytes a mask of `digits_before` has not.
local function digit_count(others)
  return WORD - tonumber(cast(int, rshift(others * 0x0101010101010101ULL, 56)))
end

-- The number of eight digits: pairs are joined, then pairs of pairs.
local function value_of(x, others)
  x = band(x, bnot(others * 255))
  x = band(rshift(x * 2561, 8), 0x00FF00FF00FF00FFULL)
  x = band(rshift(x * 6553601, 16), 0x0000FFFF0000FFFFULL)
  return tonumber(cast(int, rshift(x * 42949672960001ULL, 32)))
end

-- Where the finish reason of an answer ends that ends in this form, its numbers in `values`; else -1.
local function match(p, size, form)
  local k = form * (MOST_NUMBERS + 1)
  local last, text, at = k + count[form], form * MOST_TEXT, size
  if size < most[form] then
    return -1
  end
  -- No return out of the loop: LuaJIT would take a turn that ends by one for a way of its own, and go on from there in
  -- its interpreter.
  while true do
    at = at - sizes[k]
    if not same(p + at, texts + text, sizes[k]) then
      at = -1
      break
    end
    if k == last then
      break
    end
    local x, others = digits_before(p, at)
    local digits = digit_count(others)
    -- A number that begins with 0 has no other digit.
    if digits == 0 or digits > MOST_DIGITS or digits > 1 and p[at - digits] == ZERO then
      at = -1
      break
    end
    values[codes[k]] = value_of(x, others)
    at, text, k = at - digits, text + sizes[k], k + 1
  end
  return at
end

-- Tries the others.
local function match_other(p, size)
  for form = 0, known - 1 do
    if form ~= latest[0] then
      local at = match(p, size, form)
      if at >= 0 then
        latest[0] = form
        return at
      end
    end
  end
  return -1
end

-- The usual finish reason that ends before `at`.
local function reason_before(p, at)
  if same(p + (at - 5), '"stop', 5) then
    return "stop"
  elseif same(p + (at - 7), '"length', 7) then
    return "length"
  elseif same(p + (at - 11), '"tool_calls', 11) then
    return "tool_calls"
  end
end

--- Reads a whole answer if it ends as one that was learned.
-- @param state see `answer.lua`, cleared; set are `finish_reason` and what the ending tells of tokens;
--   `answer.settle` is to follow
-- @param p const uint8_t *, readable in [0, size)
-- @treturn boolean
function _M.read(state, p, size)
  local at = match(p, size, latest[0])
  if at < 0 then
    at = match_other(p, size)
  end
  local reason = at >= 0 and reason_before(p, at)
  if not reason then
    return false
  end
  local form = latest[0]
  local opening = opening_size[form]
  if not same(p + (at - #reason - opening), openings + form * MOST_TEXT, opening) then
    return false
  end
  state.finish_reason = reason
  local first = form * CODES
  if has[first + COMPLETION_TOKENS] > 0 then
    state.completion_tokens = values[COMPLETION_TOKENS]
  end
  if has[first + PROMPT_TOKENS] > 0 then
    state.prompt_tokens = values[PROMPT_TOKENS]
  end
  if has[first + CACHED_TOKENS] > 0 then
    state.cached_tokens = values[CACHED_TOKENS]
  end
  return true
end

local on = {}

function on.number(found, at, _, first)
  found[first] = at.code
  found.told = found.told + 1
end

-- What an ending says in words is read word by word.
local function give_up(found)
  found.words = true
end
on.string, on.open = give_up, give_up

-- What the figures of the object at `usage` are, by their places; nil where they are not all that it tells.
local function figures_of(p, usage, size)
  -- The rest of the answer's object, as one of its own.
  local text = "{" .. ffi.string(p + usage, size - usage)
  local found, figures = { told = 0, words = false }, { told = 0 }
  if json.walk(bytes.of(text), 0, #text, ROOT, on, found, false, json.ALL) ~= #text or found.words then
    return nil
  end
  for first, code in pairs(found) do
    if type(first) == "number" then
      figures[usage + first - 1] = code
    end
  end
  figures.told = found.told
  return figures
end

-- The whole numbers in [i, size), strings left out: a list of { first, last }.
local function numbers_of(p, i, size)
  local list = {}
  while i < size do
    local c = p[i]
    if c == QUOTE then
      i = string_end(p, i + 1, size)
      if i < 0 then
        return nil
      end
      i = i + 1
    elseif c == MINUS or is_digit(c) then
      local last, first = number_end(p, i), i
      if not last then
        return nil
      end
      while is_digit(p[i]) do
        i = i + 1
      end
      if i == last and last - first <= MOST_DIGITS then
        list[#list + 1] = { first, last }
      end
      i = last
    else
      i = i + 1
    end
  end
  return list
end

-- Writes down the numbers, from the last one on. Returns false where there is something else among what is told.
local function put_numbers(form, p, last, size, numbers, figures)
  local first_code, k, text = form * CODES, form * (MOST_NUMBERS + 1), form * MOST_TEXT
  local told, at = 0, size
  for code = 0, CODES - 1 do
    has[first_code + code] = 0
  end
  for n = #numbers, 0, -1 do
    local begins = n > 0 and numbers[n][2] or last
    sizes[k] = at - begins
    ffi_copy(texts + text, p + begins, sizes[k])
    text = text + sizes[k]
    if n > 0 then
      local code = figures[numbers[n][1]] or 0
      if code >= CODES or code > 0 and has[first_code + code] > 0 then
        return false
      elseif code > 0 then
        has[first_code + code], told = 1, told + 1
      end
      codes[k] = code
      at, k = numbers[n][1], k + 1
    end
  end
  return told == figures.told
end

--- Remembers how an answer ended that was read otherwise, now and then.
-- @param p const uint8_t *, readable in [0, size], p[size] == 0
-- @param reason where the member of the finish reason begins, @param value its string, @param last where that ends
-- @param usage where the member of the usage begins: from there on the answer has been checked
function _M.learn(p, reason, value, last, usage, size)
  missed = missed + 1
  if missed % LEARN_EVERY ~= 1 or size - reason > MOST_TEXT then
    return
  end
  local figures = figures_of(p, usage, size)
  local numbers = figures and numbers_of(p, last + 1, size)
  if not numbers or #numbers > MOST_NUMBERS then
    return
  end
  local form = place
  most[form] = NEVER
  if not put_numbers(form, p, last, size, numbers, figures) then
    return
  end
  opening_size[form] = value + 1 - reason
  ffi_copy(openings + form * MOST_TEXT, p + reason, opening_size[form])
  -- The opening includes the reason's first quote, which is looked for with the reason.
  count[form], most[form] = #numbers, size - reason + WORD * (#numbers + 2)
  latest[0], place = form, (place + 1) % FORMS
  known = known < FORMS and known + 1 or FORMS
end

return _M
