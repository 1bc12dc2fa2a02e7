--- A trained model of output lengths, as the sidecar exports it, and its evaluation.
--
--     local model, why = predictor.open(document, decode)     -- checked; the old model serves on when it is refused
--     predictor.evaluate(model, x, array, words.index, words.text.count, out)
--
-- A document is an envelope (`schema`, `version`, `checksum`, `payload`) around a JSON text. Numbers in it are base64
-- of little-endian arrays, so that nothing is rounded. Before a model is accepted its payload must have the checksum,
-- every number its range, and the test vectors inside must come out as the trainer computed them.
local ffi = require "ffi"
local base64 = require "tokenweir.core.base64"
local contract = require "tokenweir.contract"
local distribution = require "tokenweir.core.prediction.output_distribution"
local features = require "tokenweir.core.prediction.features"
local hash = require "tokenweir.core.hash"
local trees = require "tokenweir.core.prediction.trees"
local words = require "tokenweir.core.prediction.words"

local abs, floor, max, sqrt = math.abs, math.floor, math.max, math.sqrt
local copy, ffi_new = ffi.copy, ffi.new
local ipairs, pairs, tostring, type = ipairs, pairs, tostring, type
local read_vector, sum = trees.read, trees.sum

--- The layout of the payload; another one is refused.
local FORMAT = 1
local MOST_PAYLOAD = 8 * 1048576
local MOST_TREES, MOST_NODES = 512, 32767
local MOST_MODELS = 4096
local FEWEST_VECTORS = 8
--- How far a test vector may be off, of its value: far less than any use of it needs, far more than rounding.
local TOLERANCE = 1e-6

local _M = { FORMAT = FORMAT }

local function is_number(value, least, most)
  return type(value) == "number" and value >= least and value <= most
end

local function is_whole(value, least, most)
  return is_number(value, least, most) and value == floor(value)
end

-- The bytes of a base64 text that must hold `count` items of a C type.
local function array(text, ctype, count)
  if type(text) ~= "string" then
    return nil
  end
  local raw = base64.decode(text)
  if not raw or #raw ~= count * ffi.sizeof(ctype) then
    return nil
  end
  local list = ffi_new(ctype .. "[?]", count)
  copy(list, raw, #raw)
  return list
end

-- Weight and squared length of every word, next to each other.
local function read_words(payload, model)
  local part = payload.words
  if type(part) ~= "table" or not is_number(part.bias, -100, 100) or not is_whole(part.count, 0, words.SPACE) then
    return nil, "words: no bias or no count"
  end
  local index = array(part.index, "uint16_t", part.count)
  local weights, squares = array(part.weights, "float", part.count), array(part.squares, "float", part.count)
  if not (index and weights and squares) then
    return nil, "words: an array is missing or cut short"
  end
  local of_word = ffi_new("float[?]", 2 * words.SPACE)
  for k = 0, part.count - 1 do
    local at, weight, square = index[k], weights[k], squares[k]
    if at >= words.SPACE or not is_number(weight, -1e6, 1e6) or not is_number(square, 0, 1e6) then
      return nil, "words: number " .. k .. " is out of range"
    end
    of_word[2 * at], of_word[2 * at + 1] = weight, square
  end
  model.bias, model.words = part.bias, of_word
  return true
end

local function read_ensembles(part, model)
  local next_tree = 0
  for _, name in ipairs { "median", "lower", "upper" } do
    local ensemble = part[name]
    if type(ensemble) ~= "table" or not is_number(ensemble.start, -100, 100)
      or not is_whole(ensemble.trees, 0, MOST_TREES) then
      return nil, "trees: no ensemble for the " .. name
    end
    model[name .. "_start"] = ensemble.start
    model[name .. "_first"], model[name .. "_last"] = next_tree, next_tree + ensemble.trees - 1
    next_tree = next_tree + ensemble.trees
  end
  if next_tree ~= part.count then
    return nil, "trees: " .. part.count .. " trees for ensembles of " .. next_tree
  end
  return true
end

local function read_trees(payload, model)
  local part = payload.trees
  if type(part) ~= "table" or not is_whole(part.count, 1, MOST_TREES) or not is_whole(part.nodes, 1, MOST_NODES) then
    return nil, "trees: no count of trees and nodes"
  end
  local root = array(part.root, "uint16_t", part.count)
  local feature, right = array(part.feature, "uint8_t", part.nodes), array(part.right, "uint16_t", part.nodes)
  local value = array(part.value, "double", part.nodes)
  if not (root and feature and right and value) then
    return nil, "trees: an array is missing or cut short"
  end
  local err
  model.forest, err = trees.new(part.nodes, part.count, root, feature, right, value, features.COUNT)
  if not model.forest then
    return nil, "trees: " .. err
  end
  return read_ensembles(part, model)
end

local function read_side(list)
  if type(list) ~= "table" or #list ~= distribution.STEPS then
    return nil
  end
  local before = 0
  for k = 1, #list do
    if not is_number(list[k], before, 100) then
      return nil
    end
    before = list[k]
  end
  return list
end

local function read_shape(payload, model)
  local part = payload.shape
  local low, high = type(part) == "table" and read_side(part.low), type(part) == "table" and read_side(part.high)
  if not low or not high or not is_number(part.least_width, 1e-6, 10) or not is_number(part.mean_factor, 0.1, 10) then
    return nil, "shape: not two rising lists of " .. distribution.STEPS .. " distances"
  end
  model.shape = distribution.shape(low, high)
  model.least_width, model.mean_factor = part.least_width, part.mean_factor
  return true
end

local function read_priors(payload, model)
  local part = payload.prior
  if type(part) ~= "table" or not is_number(part.mean, 0, 17) or not is_number(part.spread, 0.01, 10)
    or type(part.models) ~= "table" or type(part.families) ~= "table" then
    return nil, "prior: incomplete"
  end
  for _, list in ipairs { part.models, part.families } do
    local count = 0
    for name, mean in pairs(list) do
      count = count + 1
      if type(name) ~= "string" or not is_number(mean, 0, 17) or count > MOST_MODELS then
        return nil, "prior: a model's mean is out of range"
      end
    end
  end
  model.prior = part
  return true
end

-- The words' weights over their length. Two words at once: sums wait for each other.
local function score_of(of_word, index, count)
  local score, square, next_score, next_square = 0, 0, 0, 0
  for k = 0, count - 2, 2 do
    local at, next_at = 2 * index[k], 2 * index[k + 1]
    score, square = score + of_word[at], square + of_word[at + 1]
    next_score, next_square = next_score + of_word[next_at], next_square + of_word[next_at + 1]
  end
  if count % 2 == 1 then
    local at = 2 * index[count - 1]
    score, square = score + of_word[at], square + of_word[at + 1]
  end
  return (score + next_score) / sqrt(max(square + next_square, 1e-9))
end

--- What the model says of a request, in ln(1 + output tokens) against its base.
-- @param model of `open`
-- @param x tw_features; `word_score` is written
-- @param list the same as const float *
-- @param index uint16 array of the request's words; @tparam number count of them
-- @param out table; written: `median`, and the distances `lower` and `upper` from it to the 10 % and 90 % quantiles
function _M.evaluate(model, x, list, index, count, out)
  x.word_score = model.bias + score_of(model.words, index, count)
  local forest, least = model.forest, model.least_width
  read_vector(forest, list)
  local median = model.median_start + sum(forest, model.median_first, model.median_last)
  local lower = model.lower_start + sum(forest, model.lower_first, model.lower_last)
  local upper = model.upper_start + sum(forest, model.upper_first, model.upper_last)
  out.median = median
  out.lower, out.upper = max(least, median - lower), max(least, upper - median)
end

local function differs(value, wanted)
  return not (type(wanted) == "number" and abs(value - wanted) <= TOLERANCE * max(1, abs(wanted)))
end

local function reproduce(model, vectors)
  if type(vectors) ~= "table" or #vectors < FEWEST_VECTORS then
    return nil, "vectors: fewer than " .. FEWEST_VECTORS
  end
  local x, out = features.new(), {}
  local list = features.array(x)
  for number, vector in ipairs(vectors) do
    local numbers = array(vector.x, "float", features.COUNT)
    local count = is_whole(vector.count, 0, 4096) and vector.count or 0
    local index = array(vector.words, "uint16_t", count)
    if not numbers or not index then
      return nil, "vectors: " .. number .. " is damaged"
    end
    for k = 0, count - 1 do
      if index[k] >= words.SPACE then
        return nil, "vectors: " .. number .. " has an unknown word"
      end
    end
    copy(x, numbers, ffi.sizeof("float") * features.COUNT)
    _M.evaluate(model, x, list, index, count, out)
    local mean = distribution.moments(model.shape, x.base + out.median, out.lower, out.upper, vector.limit)
    if differs(out.median, vector.median) or differs(out.lower, vector.lower) or differs(out.upper, vector.upper)
      or differs(mean, vector.mean) then
      return nil, "vectors: " .. number .. " does not come out as the trainer computed it"
    end
  end
  return true
end

local function check_names(payload)
  if payload.features ~= features.VERSION or type(payload.names) ~= "table" or #payload.names ~= features.COUNT then
    return nil
  end
  for k, name in ipairs(features.NAMES) do
    if payload.names[k] ~= name then
      return nil
    end
  end
  return true
end

--- Makes a model of a decoded payload. Reasons as in `open`.
function _M.build(payload, version)
  if type(payload) ~= "table" or payload.format ~= FORMAT then
    return nil, "format", "format " .. tostring(type(payload) == "table" and payload.format) .. " is not " .. FORMAT
  elseif payload.version ~= version then
    return nil, "format", "the payload is of another version than the envelope"
  elseif not check_names(payload) then
    return nil, "format", "made for other features than those of this gateway"
  end
  local model = { version = version }
  for _, read in ipairs { read_words, read_trees, read_shape, read_priors } do
    local ok, err = read(payload, model)
    if not ok then
      return nil, "value", err
    end
  end
  local ok, err = reproduce(model, payload.vectors)
  if not ok then
    return nil, "vectors", err
  end
  return model
end

--- Opens an exported model.
-- @param document table, the decoded envelope
-- @param decode function(text) -> table or nil: a JSON decoder
-- @treturn table the model; or nil, a reason fit for a metric's label (`schema`, `checksum`, `json`, `format`, `value`,
--   `vectors`), and what is wrong
function _M.open(document, decode)
  if type(document) ~= "table" or document.schema ~= contract.schema then
    return nil, "schema", "not a model of schema " .. contract.schema
  end
  local payload = document.payload
  if type(payload) ~= "string" or #payload > MOST_PAYLOAD or type(document.version) ~= "string" then
    return nil, "schema", "no payload or no version"
  elseif hash.hex(hash.string(payload)) ~= document.checksum then
    return nil, "checksum", "the payload is damaged"
  end
  local decoded = decode(payload)
  if not decoded then
    return nil, "json", "the payload is no JSON"
  end
  return _M.build(decoded, document.version)
end

--- The expected ln(1 + output) and spread of a public model before any of its outputs is known: its own of the
-- training, else its family's, else that of all.
-- @treturn number, number
function _M.prior(model, name)
  local prior = model.prior
  local mean = prior.models[name] or prior.families[_M.family(name)] or prior.mean
  return mean, prior.spread
end

--- The family of a model's name: what stands before its size, version or training, in lower case, without the maker.
-- "meta-llama/Llama-3.1-8B-Instruct" is of "llama".
function _M.family(name)
  local last = name:match("([^/]+)$") or name
  return last:lower():match("^%a+") or ""
end

return _M
