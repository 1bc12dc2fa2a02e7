"""A view with load in it, for the tests of the policies."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tests.unit.lua.fleets import build, to_lua

ORDINARY = {"n": 1, "prompt": 500, "mean": 210.0, "median": 129.0, "q90": 424.0, "sd": 163.0, "class": "high"}


class View:
    """A fleet, its summed load and what a policy sees of them."""

    def __init__(self, lua: Any, document: dict[str, Any], seed: int = 1) -> None:
        self.lua = lua
        self.fleet, err = build(lua, document)
        assert self.fleet, err
        self.policy = self.require("tokenweir.core.policy")
        self.load_module = self.require("tokenweir.core.backend.load")
        self.loads = self.load_module.new(self.fleet.size)
        self.view = self.policy.new_view()
        self.view.fleet, self.view.load = self.fleet, self.loads
        self.view.settings = self.policy.settings(to_lua(lua, document.get("thresholds")))
        self.view.random = random.Random(seed).random

    def require(self, name: str) -> Any:
        """A module of the core."""
        module = self.lua.eval(b"require")(name.encode())
        return module[0] if isinstance(module, tuple) else module

    def request(self, **members: Any) -> Any:
        """A request record."""
        return to_lua(self.lua, ORDINARY | members)

    def hold(self, index: int, **members: Any) -> Any:
        """Reserves a request on a backend."""
        r = self.request(**members)
        self.load_module.reserve(self.loads[index], r)
        return r

    def set(self, name: str, index: int, value: float) -> None:
        """Sets a number of a backend in the fleet."""
        self.lua.eval(b"function(array, i, value) array[i] = value end")(
            self.fleet[name.encode()], index, value
        )

    def cache(self, tokens: dict[int, float]) -> None:
        """What these backends have of the next prompts, in tokens."""
        credit = self.lua.eval(b"function(size) return require('ffi').new('double[?]', size) end")(1024)
        write = self.lua.eval(b"function(array, i, value) array[i] = value end")
        for index, value in tokens.items():
            write(credit, self.fleet.place[index], value)
        self.view.credit = credit

    def candidates(self, *indices: int) -> tuple[Any, int]:
        """These backends, or all of them."""
        chosen = list(indices or range(1, self.fleet.size + 1))
        return self.lua.table_from(chosen), len(chosen)

    def pick(self, name: str, *indices: int, **members: Any) -> tuple[int | None, str]:
        """What the policy of that name chooses: (index or None, reason)."""
        policy = self.policy.get(name.encode())
        answer = self.policy.pick(policy, self.view, self.request(**members), *self.candidates(*indices))
        index, reason = answer if isinstance(answer, tuple) else (answer, None)
        return index, (reason or b"").decode()

    def burst(self, name: str, count: int, **members: Any) -> Counter[int]:
        """So many requests at one moment, each reserved after its pick; how many each backend got."""
        shares: Counter[int] = Counter()
        for _ in range(count):
            index, reason = self.pick(name, **members)
            assert index is not None, reason
            self.hold(index, **members)
            shares[index] += 1
        return shares
