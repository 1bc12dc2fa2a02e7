--- The variant of a model that a request asks for: X-Precision (fp16, fp8, int4, ...).
local contract = require "tokenweir.contract"
local errors = require "tokenweir.errors"

local lower = string.lower
local concat, sort = table.concat, table.sort

local PRECISIONS = contract.precisions

local _M = {}

-- The variants that a model's backends hold, and their names for a message; made once per fleet.
local function variants_of(fleet, pool)
  if not pool.variants then
    local variants, listed = {}, {}
    for k = 1, pool.size do
      local name = fleet.precision[pool[k]]
      if name ~= "" and not variants[name] then
        variants[name] = true
        listed[#listed + 1] = name
      end
    end
    sort(listed)
    pool.variants, pool.listed_variants = variants, concat(listed, ", ")
  end
  return pool.variants
end

--- Puts what X-Precision asks for into `r.precision`; a variant that no backend holds ends the request.
-- @param asked string or nil, its value
function _M.read(r, fleet, asked)
  if not asked or asked == "" then
    return
  end
  local name = lower(asked)
  name = PRECISIONS[name] or name
  if not variants_of(fleet, r.pool)[name] then
    local listed = r.pool.listed_variants
    return errors.send(400, "unknown_precision", "No backend of model '" .. errors.echo(r.model)
      .. "' holds the precision '" .. errors.echo(asked) .. "' of X-Precision. "
      .. (listed ~= "" and "It has: " .. listed .. "." or "None of them says which it holds."), "X-Precision")
  end
  r.precision = name
end

return _M
