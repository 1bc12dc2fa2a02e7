--- `103 Early Hints` to who waits and asks for them (`X-Accept-Early-Hints: 1`): position and estimated wait.
--
-- nginx before 1.29 sends no 103 of its own. This sends one as nginx sends `100 Continue`: by the connection's own
-- `send`, which goes through TLS too, before the answer's head. Never unasked: some clients take a 103 for the answer.
-- HTTP/1.0 knows no interim answers, and on HTTP/2 bytes like these would break the framing: there nginx itself
-- sends them, from 1.29 on, or nobody.
local connection = require("tokenweir.nginx_connection").current
local ffi = require "ffi"
local get_request = require("resty.core.base").get_request
local hint = require "tokenweir.core.queue.hint"
local metrics = require "tokenweir.metrics"
local queues = require "tokenweir.queues"
local variable = require("tokenweir.variable").get

local ngx = ngx
local format = string.format
local http_version = ngx.req.http_version
local pcall, tonumber = pcall, tonumber

-- The same function as a hint that an upstream sent goes through.
ffi.cdef("intptr_t ngx_http_send_early_hints(ngx_http_request_t *r);")
local has_native = pcall(function()
  return ffi.C.ngx_http_send_early_hints
end)

local NGX_ERROR = -1

local _M = {}

-- Sends an interim answer whole.
-- @return true; or nil and whether the connection can be used no more
local function send(text)
  local c = connection()
  if not c then
    return nil, false
  end
  local sent = tonumber(c.send(c, text, #text))
  if sent == #text then
    return true
  end
  return nil, sent > 0
end

local function seconds(ms)
  return format("%.1f", ms / 1000)
end

local function wait_of(ms, most)
  return ms and seconds(ms) .. (most and most > ms and "-" .. seconds(most) or "") or nil
end

local function text_of(position, wait)
  return format("HTTP/1.1 103 Early Hints\r\nTokenweir-Queue-Position: %d\r\n%s\r\n", position,
    wait and "Tokenweir-Estimated-Wait: " .. wait .. "\r\n" or "")
end

local function allow(value)
  ngx.var.tw_hint = value
end

-- Has nginx send one, by the headers that the answer has at this moment.
-- @return see `send`
local function send_native(position, wait)
  -- Where nginx.conf says nothing of it, the variable is not there.
  if not pcall(allow, "1") then
    has_native = false
    return nil, false
  end
  local header = ngx.header
  header["Tokenweir-Queue-Position"], header["Tokenweir-Estimated-Wait"] = position, wait
  local rc = tonumber(ffi.C.ngx_http_send_early_hints(get_request()))
  header["Tokenweir-Queue-Position"], header["Tokenweir-Estimated-Wait"] = nil, nil
  allow("")
  if rc == NGX_ERROR then
    return nil, true
  end
  return true
end

--- What one that begins to wait needs to be told of.
-- @return table for `update`, or nil: it does not ask, or cannot be told
function _M.wanted(most)
  if most <= 0 or variable("http_x_accept_early_hints") ~= "1" then
    return nil
  end
  local version = http_version()
  if version == 1.1 or version >= 2 and has_native then
    return { count = 0, at = 0, native = version >= 2 }
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
  local wait = wait_of(ms, most)
  local ok, broken
  if told.native then
    ok, broken = send_native(position, wait)
  else
    ok, broken = send(text_of(position, wait))
  end
  if ok then
    hint.note(told, position, now)
    metrics.add("early_hints", 1, w.request.model)
  elseif broken then
    return false
  end
  return true
end

return _M
