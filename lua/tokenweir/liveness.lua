--- Asks backends whether they are alive while the sidecar is silent (`core/backend/liveness.lua` says when): from a
-- timer of the worker that polls, one question at a time for a backend, and a bounded number in all.
--
-- The page is one that every engine has at hand. Any byte of an answer will do, a 404 or a 401 too, and so will a
-- connection that is refused or closed: requests meet that by themselves. Over TLS neither the certificate is verified
-- nor the key sent: who is there is no matter, and nothing is told.
local clock = require "tokenweir.clock"
local core = require "tokenweir.core.backend.liveness"
local defaults = require("tokenweir.core.backend.health").DEFAULTS
local ledger = require "tokenweir.ledger"
local metrics = require "tokenweir.metrics"
local region = require "tokenweir.region"
local state = require "tokenweir.state"

local ngx = ngx
local tcp = ngx.socket.tcp
local now_ms = clock.ms
local max, random = math.max, math.random
local pcall = pcall

local PATH = "/v1/models"
local MOST_AT_ONCE = 64
local JITTER_S = 0.2

local _M = {}

local asking, asking_count = {}, 0  -- place -> true
local rest_until = {}               -- place -> ms
local turn = 0

local function question(target)
  local authorization = not target.tls and target.authorization
  return "GET " .. PATH .. " HTTP/1.1\r\nHost: " .. target.authority .. "\r\nUser-Agent: tokenweir\r\nAccept: */*\r\n"
    .. (authorization and "Authorization: " .. authorization .. "\r\n" or "") .. "Connection: close\r\n\r\n"
end

-- @return boolean, whether anything came back in time
local function answers(target)
  local late = now_ms() + core.ANSWER_MS
  local socket = tcp()
  local function left()
    return max(1, late - now_ms())
  end
  socket:settimeouts(left(), left(), left())
  local ok, err = socket:connect(target.host, target.port)
  if ok and target.tls then
    socket:settimeouts(left(), left(), left())
    ok, err = socket:sslhandshake(false, target.sni, false)
  end
  if ok then
    socket:settimeouts(left(), left(), left())
    ok, err = socket:send(question(target))
  end
  if ok then
    socket:settimeouts(left(), left(), left())
    ok, err = socket:receive(1)
  end
  socket:close()
  return ok and true or err ~= "timeout"
end

local function judge(target)
  local asked = now_ms()
  local alive = answers(target)
  local now = now_ms()
  local h, known = region.health()[target.place], state.current(now)
  metrics.add("liveness_checks", 1, alive and "answered" or "unanswered")
  if alive then
    core.answered(h, now)
  elseif core.unanswered(h, asked, now, known.settings and known.settings.health or defaults) then
    metrics.ejection(target.id, "hang")
    ngx.log(ngx.WARN, "tokenweir: backend ", target.id, " has work and answers nothing; it is ejected")
  end
end

local function ask(premature, target)
  local ok, err = true, nil
  if not premature then
    ok, err = pcall(judge, target)
  end
  local place = target.place
  asking[place], asking_count = nil, asking_count - 1
  rest_until[place] = now_ms() + core.PAUSE_MS
  if not ok then
    ngx.log(ngx.ERR, "tokenweir: whether backend ", target.id, " is alive could not be asked: ", err)
  end
end

--- Looks for backends that are to be asked; from the timer of one worker.
function _M.watch(known, now)
  local fleet, rows = known.fleet, region.health()
  local size = fleet and fleet.size or 0
  local how = known.settings and known.settings.health or defaults
  turn = turn + 1
  for k = 1, size do
    -- Where more are silent than can be asked at once, each is the first in its turn.
    local i = (turn + k) % size + 1
    local place = fleet.place[i]
    local h = rows[place]
    local silence = core.silence(h, ledger.count(place), now)
    if asking_count < MOST_AT_ONCE and not asking[place] and now >= (rest_until[place] or 0)
      and core.doubtful(h, fleet.engine[i], silence, known.snapshot_age_ms, now, how)
      and ngx.timer.at(JITTER_S * random(), ask, fleet.target[i])
    then
      asking[place], asking_count = true, asking_count + 1
    end
  end
end

return _M
