"""What the gateway would decide (`lua/tokenweir/core/sessions/transfer.lua`), on the figures of a case."""

from __future__ import annotations

from typing import Any

from tokenweir.luavm import new_runtime

PLAN = b"""function(tokens, kv_bytes, prefill, bandwidth, latency)
  local fleet = {
    at_place = { [0] = 1, [1] = 2 }, place = { 0, 1 }, state = { "ready", "ready" }, precision = { "", "" },
    kv_bytes = { kv_bytes, kv_bytes }, prefill = { prefill, prefill },
  }
  local r = {
    place = 1, moved_from = 0, moved_tokens = tokens, reckoned = 0, prompt = tokens,
    pool = { upstream_of = {} },
  }
  local how = { adapter = "agent", bandwidth = bandwidth, latency_ms = latency, limit_ms = 600000 }
  local memory = require("tokenweir.core.sessions.cache_memory").new()
  return require("tokenweir.core.sessions.transfer").plan(memory, fleet, r, how, 0, 0) ~= nil
end"""


class Decision:
    """The rule, in LuaJIT as in the gateway."""

    def __init__(self) -> None:
        self._plan: Any = new_runtime().eval(PLAN)

    def pays(self, tokens: int, kv_bytes: int, prefill: float, bandwidth: float, latency: float = 20) -> bool:
        """Whether tokens of `kv_bytes` each are moved at `bandwidth` bytes a second after `latency` ms, where
        a token's prefill takes `prefill` ms."""
        return bool(self._plan(tokens, kv_bytes, prefill, bandwidth, latency))
