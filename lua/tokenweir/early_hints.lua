--- `103 Early Hints` to who waits and asks for them (`X-Accept-Early-Hints: 1`): position and estimated wait.
--
-- nginx before 1.29 sends no 103 of its own. This sends one as nginx sends `100 Continue`: by the connection's own
-- `send`, which goes through TLS too, before the answer's head. Never unasked: some clients take a 103 for the answer.
-- Only on HTTP/1.1: HTTP/1.0 knows no interim answers, and on HTTP/2 bytes like these would break the framing.
local ffi = require "ffi"
local get_request = require("resty.core.base").get_request
local hint = require "tokenweir.core.queue.hint"
local metrics = require "tokenweir.metrics"
local queues = require "tokenweir.queues"
local variable = require("tokenweir.variable").get

local ngx = ngx
local cast = ffi.cast
local format = string.format
local http_version = ngx.req.http_version
local tonumber = tonumber

ffi.cdef [[
typedef struct tw_connection tw_connection;
struct tw_connection {             /* how ngx_connection_t begins, in every version */
  void *data, *read, *write;
  int fd;
  ssize_t (*recv)(tw_connection *c, unsigned char *buffer, size_t size);
  ssize_t (*send)(tw_connection *c, const char *buffer, size_t size);
};
typedef struct {                   /* how ngx_http_request_t begins */
  uint32_t signature;
  tw_connection *connection;
} tw_request_head;
]]

local HEAD = ffi.typeof("tw_request_head *")
local SIGNATURE = 0x50545448       -- "HTTP"

local _M = {}

-- Sends an interim answer whole.
-- @return true; or nil and whether the connection can be used no more
local function send(text)
  local r = get_request()
  r = r and cast(HEAD, r)
  if not r or r.signature ~= SIGNATURE then
    return nil, false
  end
  local c = r.connection
  local sent = tonumber(c.send(c, text, #text))
  if sent == #text then
    return true
  end
  return nil, sent > 0
end

local function seconds(ms)
  return format("%.1f", ms / 1000)
end

local function text_of(position, ms, most)
  local wait = ""
  if ms then
    wait = "Tokenweir-Estimated-Wait: " .. seconds(ms) .. (most and most > ms and "-" .. seconds(most) or "") .. "\r\n"
  end
  return format("HTTP/1.1 103 Early Hints\r\nTokenweir-Queue-Position: %d\r\n%s\r\n", position, wait)
end

--- What one that begins to wait needs to be told of.
-- @return table for `update`, or nil: it does not ask, or cannot be told
function _M.wanted(most)
  if most > 0 and variable("http_x_accept_early_hints") == "1" and http_version() == 1.1 then
    return { count = 0, at = 0 }
  end
end

--- Tells a waiter where it stands, if that is news. To be called in its own request.
-- @param w the waiter; `w.told` is what `wanted` returned
-- @return boolean, false: the connection is broken
function _M.update(w, now, most_hints)
  local told = w.told
  local position, ms, most = queues.expect(w, now)
  if not hint.is_due(told, position, now, most_hints) or ngx.headers_sent then
    return true
  end
  local ok, broken = send(text_of(position, ms, most))
  if ok then
    hint.note(told, position, now)
    metrics.add("early_hints", 1, w.record.model)
  elseif broken then
    return false
  end
  return true
end

return _M
