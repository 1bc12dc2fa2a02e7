--- What kind of request it is, by its path and its method, and whether it has headers of ours.
--
-- nginx.conf has a location for each path that most requests ask for, which says the kind of what comes there. Such a
-- path may still be written otherwise (`/v1/ch%61t/completions`) or have a query.
local base = require "resty.core.base"
local errors = require "tokenweir.errors"
local ffi = require "ffi"
local fixed_array = require "tokenweir.core.fixed_array"
local path = require "tokenweir.core.body.path"
local variables = require "tokenweir.variable"
-- It declares the functions that read headers.
require "resty.core.request"

local bytes_of, variable = variables.bytes, variables.get
local count_headers = ffi.C.ngx_http_lua_ffi_req_get_headers_count
local get_headers = ffi.C.ngx_http_lua_ffi_req_get_headers
local get_method = ngx.req.get_method
local get_request = base.get_request
local lower = string.lower
local tonumber = tonumber

local KINDS = {
  ["/v1/chat/completions"] = "chat",
  ["/v1/completions"] = "completions",
  ["/v1/responses"] = "responses",
  ["/v1/embeddings"] = "embeddings",
}
local PATH_SIZES = {}
for name, kind in pairs(KINDS) do
  PATH_SIZES[kind] = #name
end

local DASH = 45
--- Of the names of headers that the access phase reads: X-Priority, X-Precision, X-Session-Id, X-Request-Id.
local SHORTEST_NAME, LONGEST_NAME = 10, 12
--- A request with more headers counts as one that may have some of ours.
local MOST_HEADERS = 64

local headers = fixed_array.new("ngx_http_lua_ffi_table_elt_t", MOST_HEADERS)
local truncated = ffi.new("int[1]")

local _M = {}

-- Whether there may be a header that the access phase reads. Hardly any other name has a dash behind its first letter.
local function has_headers_of_ours()
  local request = get_request()
  truncated[0] = 0
  local count = count_headers(request, MOST_HEADERS, truncated)
  if truncated[0] ~= 0 or count > 0 and get_headers(request, headers, count, 1) ~= 0 then
    return true
  end
  for k = 0, count - 1 do
    if headers[k].key.data[1] == DASH then
      local size = tonumber(headers[k].key.len)
      if size >= SHORTEST_NAME and size <= LONGEST_NAME then
        return true
      end
    end
  end
  return false
end

--- Whether a request is as most are: a POST to the path of this kind as it is mostly written, with no header of ours.
-- @param kind string, of the location that it came to
function _M.is_usual(kind)
  local _, size = bytes_of("request_uri")
  -- Where the path was written otherwise, it was written longer.
  return size == PATH_SIZES[kind] and get_method() == "POST" and not has_headers_of_ours()
end

-- By the path that the engine will see.
local function by_path()
  local written = path.of(variable("request_uri"))
  local kind = KINDS[written]
  if kind then
    return kind
  end
  local ok, wrong = path.check(written)
  if not ok then
    return errors.send(400, "invalid_path", "This path cannot be passed on: " .. wrong .. ".")
  end
  -- `/v1/ch%61t/completions` is the same place to an engine.
  return KINDS[variable("uri")]
end

-- nginx would drop the header and ask the engine for a plain page: its answer could only mislead.
local function refuse_websocket()
  local upgrade = variable("http_upgrade")
  if upgrade and lower(upgrade) == "websocket" then
    return errors.send(501, "not_implemented",
      "WebSocket connections (as of /v1/realtime) are not passed on. Connect to the backend itself.")
  end
end

--- The kind of any request: one of those above, or "other". Answers itself what cannot be passed on.
function _M.find()
  local kind = by_path()
  if kind and get_method() == "POST" then
    return kind
  end
  refuse_websocket()
  return "other"
end

return _M
