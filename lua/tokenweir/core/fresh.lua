--- Loads a module's source once more, so that LuaJIT compiles its functions apart for one caller.
--
-- LuaJIT keeps what it compiled with the source of a function. Where two callers drive one loop in different ways, as
-- the JSON walk is driven by requests and by answers, each stumbles over the paths of the other: twice the time.
local error, loadfile = error, loadfile
local searchpath = package.searchpath

local _M = {}

--- @tparam string name as for `require`
-- @return what the module returns, of its own
function _M.load(name)
  local path, missing = searchpath(name, package.path)
  if not path then
    error("module '" .. name .. "' not found:" .. missing)
  end
  local chunk, message = loadfile(path)
  if not chunk then
    error(message)
  end
  return chunk(name)
end

return _M
