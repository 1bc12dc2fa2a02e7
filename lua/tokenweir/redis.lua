--- A small Redis client over cosockets: RESP2, pipelines, ACL users, TLS, keep-alive. One round trip per pipeline.
--
--   local connection = assert(redis.connect(options))
--   local replies = connection:pipeline { { "GET", "a" }, { "SET", "b", "1", "PX", 3000 } }
--   connection:keep()
--
-- A reply is a string, a number, a list, `redis.null`, or, for an error reply, a table {err = message}.
-- A failed pipeline closes the connection: what was sent may or may not have been done.
local tcp = ngx.socket.tcp
local null = ngx.null
local setmetatable, tostring, type, tonumber = setmetatable, tostring, type, tonumber
local byte, sub = string.byte, string.sub

local CONNECT_MS, SEND_MS, READ_MS = 500, 1000, 1000
local IDLE_MS, POOL_SIZE = 10000, 4
local MAX_BULK = 128 * 1024 * 1024
local MAX_ITEMS = 1024 * 1024
local MAX_DEPTH = 8

local _M = { null = null }
local connection_methods = {}
local metatable = { __index = connection_methods }

local read_reply

local function read_bulk(socket, size)
  if size == -1 then
    return null
  end
  if not size or size < 0 or size > MAX_BULK then
    return nil, "bad length of a Redis reply: " .. tostring(size)
  end
  local data, err = socket:receive(size)
  if not data then
    return nil, err
  end
  local ending
  ending, err = socket:receive(2)
  if not ending then
    return nil, err
  end
  return data
end

local function read_list(socket, count, depth)
  if count == -1 then
    return null
  end
  if not count or count < 0 or count > MAX_ITEMS or depth > MAX_DEPTH then
    return nil, "bad list in a Redis reply"
  end
  local list = {}
  for k = 1, count do
    local item, err = read_reply(socket, depth + 1)
    if item == nil then
      return nil, err
    end
    list[k] = item
  end
  return list
end

function read_reply(socket, depth)
  local line, err = socket:receive()
  if not line then
    return nil, err
  end
  local kind, rest = byte(line), sub(line, 2)
  if kind == 36 then      -- $
    return read_bulk(socket, tonumber(rest))
  elseif kind == 43 then  -- +
    return rest
  elseif kind == 58 then  -- :
    return tonumber(rest)
  elseif kind == 42 then  -- *
    return read_list(socket, tonumber(rest), depth)
  elseif kind == 45 then  -- -
    return { err = rest }
  end
  return nil, "not a Redis reply: " .. sub(line, 1, 32):gsub("[%c\127-\255]", "?")
end

--- Appends one command in RESP to a list of fragments.
local function append(fragments, command)
  local at = #fragments
  fragments[at + 1] = "*" .. #command .. "\r\n"
  for k = 1, #command do
    local argument = command[k]
    if type(argument) ~= "string" then
      argument = tostring(argument)
    end
    fragments[at + 4 * k - 2] = "$" .. #argument
    fragments[at + 4 * k - 1] = "\r\n"
    fragments[at + 4 * k] = argument
    fragments[at + 4 * k + 1] = "\r\n"
  end
end

--- Sends commands in one go and reads all their replies.
-- @param commands list of lists of strings or numbers
-- @return list of replies in the commands' order; or nil, err
function connection_methods:pipeline(commands)
  local fragments = {}
  for k = 1, #commands do
    append(fragments, commands[k])
  end
  local sent, err = self.socket:send(fragments)
  if not sent then
    self:close()
    return nil, "send: " .. err
  end
  local replies = {}
  for k = 1, #commands do
    local reply
    reply, err = read_reply(self.socket, 1)
    if reply == nil then
      self:close()
      return nil, "receive: " .. tostring(err)
    end
    replies[k] = reply
  end
  return replies
end

--- Puts the connection into the pool of this worker.
function connection_methods:keep()
  local socket = self.socket
  self.socket = nil
  if socket and not socket:setkeepalive(IDLE_MS, POOL_SIZE) then
    socket:close()
  end
end

function connection_methods:close()
  local socket = self.socket
  self.socket = nil
  if socket then
    socket:close()
  end
end

--- Closes a connection on which a command was refused. The next one may lead to where it is taken: the name's new
-- master, while this is a replica by now; or it logs in anew, with what is right by now.
-- @param err string, the error reply
function _M.give_up(connection, options, err)
  if sub(err, 1, 8) == "READONLY" and options.address and options.address ~= options.host then
    options.by_name = not options.by_name
  end
  connection:close()
end

local function authenticate(connection, options)
  local commands = {}
  if options.password and options.password ~= "" then
    if options.user and options.user ~= "" then
      commands[1] = { "AUTH", options.user, options.password }
    else
      commands[1] = { "AUTH", options.password }
    end
  end
  if options.db and options.db ~= 0 then
    commands[#commands + 1] = { "SELECT", options.db }
  end
  if #commands == 0 then
    return true
  end
  local replies, err = connection:pipeline(commands)
  if not replies then
    return nil, err
  end
  for k = 1, #replies do
    if type(replies[k]) == "table" and replies[k].err then
      connection:close()
      return nil, commands[k][1] .. ": " .. replies[k].err
    end
  end
  return true
end

-- A name is looked up by the system when the gateway starts (`address`), and by nginx's resolver when that address does
-- not answer: Redis may have moved.
local function dial(socket, options)
  if options.host:sub(1, 5) == "unix:" then
    return socket:connect(options.host, { pool = options.pool })
  end
  local address = not options.by_name and options.address or options.host
  local ok, err = socket:connect(address, options.port or 6379, { pool = options.pool })
  if not ok and options.address and options.address ~= options.host then
    options.by_name = not options.by_name
  end
  return ok, err
end

--- @param options table: `host` (name, IP address or `unix:/path`), `address` (of that name, or nil), `port`, `user`,
--   `password`, `db`, `tls` (boolean), `tls_name` (name to verify; default: the host), `tls_verify` (default true),
--   `connect_ms`, `send_ms`, `read_ms`
-- @return connection; or nil, err
function _M.connect(options)
  local socket, err = tcp()
  if not socket then
    return nil, err
  end
  socket:settimeouts(options.connect_ms or CONNECT_MS, options.send_ms or SEND_MS, options.read_ms or READ_MS)
  if not options.pool then
    options.pool = "tokenweir:" .. options.host .. ":" .. (options.port or 0) .. ":" .. (options.user or "") .. ":"
      .. (options.db or 0) .. (options.tls and ":tls" or "")
  end
  local ok
  ok, err = dial(socket, options)
  if not ok then
    return nil, "connect: " .. tostring(err)
  end
  local connection = setmetatable({ socket = socket }, metatable)
  if socket:getreusedtimes() > 0 then
    return connection
  end
  if options.tls then
    ok, err = socket:sslhandshake(nil, options.tls_name or options.host, options.tls_verify ~= false)
    if not ok then
      connection:close()
      return nil, "TLS: " .. tostring(err)
    end
  end
  ok, err = authenticate(connection, options)
  if not ok then
    return nil, err
  end
  return connection
end

return _M
