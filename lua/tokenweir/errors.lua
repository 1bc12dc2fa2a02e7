--- Errors that Tokenweir itself makes, in OpenAI's shape:
--   {"error":{"message":...,"type":...,"param":...,"code":...}}
local current_context = require "tokenweir.current_context"
local json_string = require "tokenweir.core.json.string"

local ngx = ngx
local ceil, min, random = math.ceil, math.min, math.random
local gsub, sub = string.gsub, string.sub
local encode = json_string.encode

local MOST_RETRY_AFTER_S = 60
local MOST_ECHO = 128

local TYPES = {
  [401] = "authentication_error", [403] = "permission_error", [429] = "rate_limit_error",
}

--- What nginx answers by itself, told in our words. The status stays.
local OF_NGINX = {
  [400] = { "bad_request", "The request is not valid HTTP, or a line of its headers is longer than 16 KiB." },
  [403] = { "forbidden", "This is not allowed." },
  [404] = { "not_found", "Nothing is here." },
  [405] = { "method_not_allowed", "This method is not allowed here." },
  [408] = { "request_timeout", "The request did not arrive in time." },
  [411] = { "length_required", "The request must say how long its body is." },
  [413] = { "request_too_large", "The request body is larger than the gateway takes (limits.body_max)." },
  [414] = { "uri_too_long", "The request's path is too long." },
  [429] = { "overloaded", "Every backend that could serve this request is busy. Try again later." },
  [500] = { "internal_error", "The gateway met an error of its own; its error log says which." },
  [501] = { "not_implemented", "The request's body comes in an encoding (Transfer-Encoding) that is not understood." },
  [502] = { "upstream_broke", "The backend closed the connection before it answered, or its answer cannot be read." },
  [503] = { "no_capacity", "No backend can serve this request now. Try again later." },
  [504] = { "upstream_timeout", "The backend did not answer in time (limits.idle)." },
  [505] = { "http_version_not_supported", "This version of HTTP is not spoken here: use HTTP/1.1." },
}

local _M = {}

--- A client's string as it may be repeated in a message: short, plain ASCII.
function _M.echo(text)
  return (gsub(sub(text, 1, MOST_ECHO), "[^\32-\126]", "?"))
end

--- @return string what `type` says for a status
function _M.type_of(status)
  return TYPES[status] or (status >= 500 and "server_error" or "invalid_request_error")
end

--- @param more string or nil, JSON members that the error has besides
-- @return string the JSON of an error
function _M.body(status, code, message, param, more)
  return '{"error":{"message":' .. encode(message) .. ',"type":"' .. _M.type_of(status) .. '","param":'
    .. (param and encode(param) or "null") .. ',"code":"' .. code .. '"' .. (more and "," .. more or "") .. "}}"
end

--- Whole seconds for Retry-After, at most a minute, spread by up to a half so that clients do not return together.
function _M.retry_after(seconds)
  return min(MOST_RETRY_AFTER_S, ceil(seconds * (1 + 0.5 * random())))
end

--- Ends the request with an error; from the access or the content phase. Does not return.
-- @param param string or nil, the parameter that is wrong
-- @param retry_after_s number or nil, before jitter
-- @param more string or nil, JSON members that the error has besides
function _M.send(status, code, message, param, retry_after_s, more)
  local body = _M.body(status, code, message, param, more)
  ngx.status = status
  local header = ngx.header
  header["Content-Type"] = "application/json"
  header["Content-Length"] = #body
  if retry_after_s then
    header["Retry-After"] = _M.retry_after(retry_after_s)
  end
  if status == 401 then
    header["WWW-Authenticate"] = "Bearer"
  end
  local r = current_context.get()
  r.answered, r.code = true, code
  ngx.print(body)
  return ngx.exit(ngx.HTTP_OK)
end

--- What nginx's own error page becomes.
-- @return code, message
function _M.of_nginx(status)
  local known = OF_NGINX[status]
  if known then
    return known[1], known[2]
  end
  return status >= 500 and "internal_error" or "bad_request", "The gateway cannot serve this request."
end

--- The last event of a stream that broke off. An event that was cut in the middle is ended first.
-- @return string
function _M.event(status, code, message)
  return "\n\ndata: " .. _M.body(status, code, message) .. "\n\n"
end

--- There is no snapshot yet.
function _M.starting()
  return _M.send(503, "starting", "The gateway has not heard from its sidecar yet. Try again in a moment.", nil, 1)
end

--- Plain HTTP where TLS is spoken.
function _M.tls_wanted()
  return _M.send(400, "tls_required", "This port speaks HTTPS: begin the address with https://.")
end

--- Paths outside /v1/.
function _M.not_found()
  return _M.send(404, "not_found", "Nothing is at " .. _M.echo(ngx.var.uri) .. ". The API is below /v1/.")
end

return _M
