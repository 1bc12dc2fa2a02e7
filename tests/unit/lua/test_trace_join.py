"""`lua/tokenweir/core/trace_join.lua`."""

from __future__ import annotations

from typing import Any

from tokenweir.luavm import new_runtime

WAYS = 8

_COUNT = b"""
local fresh = require "tokenweir.core.fresh"
local util = require "jit.util"
local join = ... and fresh.load "tokenweir.core.trace_join"
local compiled, sink = {}, { 0 }

local function behind(x)
  sink[1] = sink[1] + x
end

local function choose(k)
  if k == 1 then return 3 elseif k == 2 then return 5 elseif k == 3 then return 7 elseif k == 4 then return 11
  elseif k == 5 then return 13 elseif k == 6 then return 17 elseif k == 7 then return 19 end
  return 23
end

local function phase(k)
  local x = choose(k)
  if join then
    join()
  end
  behind(x)
end

local at
jit.attach(function(_, func) if func == behind then at = true end end, "record")
jit.attach(function(what, trace)
  if what == "stop" and at then
    compiled[#compiled + 1] = trace
  end
  at = nil
end, "trace")
for turn = 1, 3000 do
  phase(turn % 8 + 1)
end
return #compiled, sink[1]
"""


def compiled(*, joined: bool) -> tuple[int, float]:
    """How often what follows a choice of eight outcomes was compiled, and what came of it."""
    lua: Any = new_runtime()
    count, result = lua.execute(_COUNT, joined)
    return int(count), float(result)


def test_what_follows_a_choice_is_compiled_once_behind_a_join() -> None:
    apart, result = compiled(joined=False)
    together, same = compiled(joined=True)
    assert apart >= WAYS - 2
    assert together == 1
    assert same == result
