--- Fetches the documents: asks for what may have changed, and puts what is new before all workers. Of a large document
-- only the head is compared, and now and then the whole. The predictor's model is fetched when another one is named.
local cjson = require "cjson.safe"
local check = require "tokenweir.core.documents.check"
local clock = require "tokenweir.clock"
local contract = require "tokenweir.contract"
local documents = require "tokenweir.documents"
local state = require "tokenweir.state"

local dict = ngx.shared.tokenweir_documents
local now_ms = clock.ms
local crc32 = ngx.crc32_long
local type = type

local KEYS = contract.keys
local LARGE = 65536             -- of a larger document only the head is compared
local HEAD = 255
local WHOLE_EVERY_MS = 5000     -- and now and then the whole

local _M = {}

local fetched = {}  -- document -> {text =, head =, version = of the published one then, whole_at =, said =}
local followed      -- what was last seen of the key that names the predictor in service

local function entry_of(name)
  local entry = fetched[name]
  if not entry then
    entry = { text = nil, head = nil, version = nil, whole_at = 0 }
    fetched[name] = entry
  end
  return entry
end

--- Adds the commands that look at documents.
-- @param names array of documents, in the order in which they are to be looked at
-- @return what `take` needs to find the replies
function _M.ask(commands, names, now)
  local asked = {}
  for k = 1, #names do
    local name, entry = names[k], entry_of(names[k])
    local whole = not entry.text or #entry.text < LARGE or now - entry.whole_at > WHOLE_EVERY_MS
    commands[#commands + 1] = whole and { "GET", KEYS[name] } or { "GETRANGE", KEYS[name], 0, HEAD }
    asked[k] = { name = name, at = #commands, whole = whole }
  end
  return asked
end

-- A document of a thousand backends takes a while: requests get their turn in between. Without any delay nginx would go
-- on with this before it looks at its connections.
local function pause()
  ngx.sleep(0.001)
end

-- Of a megabyte that takes 3 ms, so only of what is refused.
local function digest(text)
  return crc32(text) .. ":" .. #text
end

local function admit(name, text)
  local entry = entry_of(name)
  entry.whole_at = now_ms()
  local present, version = documents.is_present(name), documents.version(name)
  -- One that polled before and was held up may have put an older one over it.
  if text == entry.text and present and version == entry.version then
    return
  end
  entry.text, entry.head, entry.version = text, text:sub(1, HEAD + 1), version
  if present and name ~= "snapshot" and text == dict:get(name) then
    return
  end
  -- Another worker may have polled before, and refused this text already.
  local refused = dict:get("last-refused:" .. name) or ""
  if refused ~= "" and refused == digest(text) then
    return
  end
  local new, reason, detail = documents.admit(name, text, "redis", state.trial(name), pause)
  local refusal = new == nil and digest(text) or ""
  if refusal ~= refused then
    dict:set("last-refused:" .. name, refusal)
  end
  entry.version = documents.version(name)
  if new then
    if #text >= LARGE then
      pause()
    end
    state.refresh(now_ms(), true)
  elseif new == nil and not reason then
    return
  elseif new == nil then
    local said = name .. ": " .. reason
    if entry.said ~= said then
      entry.said = said
      ngx.log(ngx.ERR, "tokenweir: refused the ", name, " from Redis (", reason, "): ", detail or "")
    end
    return
  end
  entry.said = nil
end

--- Takes the replies in; of a large document that has changed the whole is fetched first.
-- @param asked of `ask`
-- @return true; or nil, err
function _M.take(connection, replies, asked)
  for k = 1, #asked do
    local item = asked[k]
    local reply, whole = replies[item.at], item.whole
    if not whole and type(reply) == "string" and reply ~= fetched[item.name].head then
      local again, err = connection:pipeline { { "GET", KEYS[item.name] } }
      if not again then
        return nil, err
      end
      reply, whole = again[1], true
    end
    if whole and type(reply) == "string" then
      admit(item.name, reply)
    end
  end
  return true
end

--- Fetches the model that the key names, when it names another one than the last time. One that was refused is not
-- asked for again.
-- @param text of the key
-- @return true; or nil, err
function _M.follow_predictor(connection, text)
  local settled = documents.is_present("predictor_model") or (dict:get("last-refused:predictor_model") or "") ~= ""
  if text == followed and settled then
    return true
  end
  local current, err = cjson.decode(text)
  local ok
  ok, err = check.document(current or err, "predictor_current")
  if not ok then
    if text ~= followed then
      documents.refuse("predictor_current", "value")
      ngx.log(ngx.ERR, "tokenweir: the predictor in service is not known: ", err)
    end
    followed = text
    return true
  end
  local replies
  replies, err = connection:pipeline { { "GET", KEYS.predictor_model .. current.version } }
  if not replies then
    return nil, err
  end
  if type(replies[1]) == "string" then
    followed = text
    admit("predictor_model", replies[1])
  end
  return true
end

return _M
