--- The small model of this host (`model/small/`), as a worker talks to it: what it says, what comes of that, and
-- whether it helps.
local config = require "tokenweir.config"
local metrics = require "tokenweir.metrics"

local ngx = ngx
local tcp = ngx.socket.tcp
local abs, exp = math.abs, math.exp
local concat, match = table.concat, string.match
local tonumber = tonumber

local CONNECT_MS, ANSWER_MS = 50, 2000
local IDLE_MS, POOL = 60000, 8
--- Results that wait for the next question.
local MOST_RESULTS = 256

local _M = {}

--- Outputs from which its worth is judged, and that count in that.
local AT_LEAST, WINDOW = 50, 300

local said              -- of an outage
local results, result_count = {}, 0
-- Errors of the medians with its corrections and without, and whether the corrections are used.
local worth = { with = 0, without = 0, count = 0, used = true }

local function judge(median, correction, output)
  local keep = 1 - 1 / WINDOW
  local with, without = abs(exp(median + correction) - 1 - output), abs(exp(median) - 1 - output)
  worth.with, worth.without = keep * worth.with + with, keep * worth.without + without
  worth.count = worth.count + 1
  metrics.add("small_model_error_tokens", with, "corrected")
  metrics.add("small_model_error_tokens", without, "before")
  local used = worth.count < AT_LEAST or worth.with <= worth.without
  if used ~= worth.used then
    worth.used = used
    ngx.log(ngx.NOTICE, "tokenweir: the small model's corrections ", used and "help again, and are used"
      or "do not help, and are not used until they do")
  end
end

--- An answer is complete whose text was asked of; its length is told with the next question.
-- @param output tokens of one sequence; only of one that ended by itself
function _M.learn(r, output)
  local median, correction = r.opinion.median, r.opinion.correction
  judge(median, correction, output)
  if result_count < MOST_RESULTS then
    result_count = result_count + 1
    results[result_count] = ("learn %s %.4f\n"):format(r.opinion.number, r.learned - median)
  end
end

local function take_results()
  local told = concat(results, "", 1, result_count)
  result_count = 0
  return told
end

local function converse(question)
  local socket = tcp()
  socket:settimeouts(CONNECT_MS, CONNECT_MS, ANSWER_MS)
  local ok, err = socket:connect("unix:" .. config.current.small_model_socket, { pool_size = POOL })
  if not ok then
    return nil, err
  end
  ok, err = socket:send(take_results() .. question)
  local line
  if ok then
    line, err = socket:receive("*l")
  end
  if not line then
    socket:close()
    return nil, err
  end
  socket:setkeepalive(IDLE_MS, POOL)
  return line
end

--- Asks; in a timer.
-- @param question as `model/small/service.py` reads it
-- @treturn number the correction of the median, in ln(1 + tokens), and the answer's number; or nil, "busy" or "failed"
function _M.ask(question)
  local line, err = converse(question)
  if not line then
    if err ~= said then
      said = err
      ngx.log(ngx.WARN, "tokenweir: the small model does not answer: ", err)
    end
    return nil, "failed"
  end
  said = nil
  local number, correction = match(line, "^(%d+) (%-?%d+%.%d+)$")
  if not number then
    return nil, "busy"
  end
  return tonumber(correction), number
end

--- Whether its corrections make predictions better, as far as is known.
function _M.helps()
  return worth.used
end

return _M
