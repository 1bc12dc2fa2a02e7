--- Times the readers of lua/tokenweir/core in loops that LuaJIT compiles, as they run in the gateway.
local prompt_digest = require "tokenweir.core.body.prompt_digest"
local request = require "tokenweir.core.body.request"
local splice = require "tokenweir.core.json.splice"
local sse = require "tokenweir.core.answer.sse"
local usage = require "tokenweir.core.answer.usage"

local clock = os.clock

local _M = {}

local parsed, edits = {}, {}
local stream, answer = sse.new(), usage.new()

local function check(ok, _, message)
  return assert(ok, message)
end

local operations = {}

function operations.parse(kind, pieces, rounds)
  for _ = 1, rounds do
    check(request.parse(kind, pieces[1], parsed))
  end
end

function operations.digest(kind, pieces, rounds)
  check(request.parse(kind, pieces[1], parsed))
  for _ = 1, rounds do
    prompt_digest.digest(parsed)
  end
end

function operations.opening_digest(kind, pieces, rounds)
  check(request.parse(kind, pieces[1], parsed))
  for _ = 1, rounds do
    prompt_digest.opening_digest(parsed)
  end
end

function operations.set_model(kind, pieces, rounds)
  check(request.parse(kind, pieces[1], parsed))
  for _ = 1, rounds do
    edits[1], edits[2], edits[3] = nil, nil, nil
    splice.set_member(edits, parsed, "model", '"another"')
    splice.apply(pieces[1], edits)
  end
end

function operations.stream(_, pieces, rounds)
  for _ = 1, rounds do
    sse.reset(stream)
    for k = 1, #pieces do
      sse.feed(stream, pieces[k])
    end
    sse.finish(stream)
  end
end

function operations.answer(_, pieces, rounds)
  for _ = 1, rounds do
    usage.reset(answer)
    for k = 1, #pieces do
      usage.feed(answer, pieces[k])
    end
    usage.finish(answer)
  end
end

--- Microseconds of CPU that one operation takes on these pieces of input.
-- @tparam string name of an operation above
-- @tparam string kind of the request
-- @tparam table pieces
-- @tparam number rounds
function _M.microseconds(name, kind, pieces, rounds)
  local operation = operations[name]
  local began = clock()
  operation(kind, pieces, rounds)
  return (clock() - began) / rounds * 1e6
end

return _M
