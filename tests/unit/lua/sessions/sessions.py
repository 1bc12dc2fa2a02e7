"""A gateway's sessions without nginx, for the tests of `core/sessions/affinity.lua` and `policy/stay.lua`."""

from __future__ import annotations

import random
from typing import Any

from tests.unit.lua.fleets import snapshot
from tests.unit.lua.views import View

MINUTE = 60_000.0
LIFE = 10 * MINUTE


def halves(number: int) -> tuple[int, int]:
    """The halves of a session's hash, the session given by number."""
    source = random.Random(number)
    return source.getrandbits(32) - 2**31, source.getrandbits(32) - 2**31


class Sessions:
    """A fleet with a memory of its own; requests name their session by a number."""

    def __init__(self, lua: Any, *backends: dict[str, Any], seed: int = 1, **members: Any) -> None:
        self.lua, self.seed = lua, seed
        self.now = 1_000_000.0
        self.view = View(lua, snapshot(*backends, **members), seed)
        self.core = self.view.require("tokenweir.core.sessions.affinity")
        self.cache = self.view.require("tokenweir.core.sessions.cache_memory")
        self.memory = self.cache.new()
        self.rings = self.view.require("tokenweir.core.sessions.rings").new()
        self.names = [backend["id"] for backend in backends]
        self.verdict = ""

    def fleet(self, *backends: dict[str, Any], **members: Any) -> None:
        """Another snapshot; the load of the backends is forgotten."""
        self.view = View(self.lua, snapshot(*backends, **members), self.seed)
        self.names = [backend["id"] for backend in backends]
        self.cache.follow(self.memory, self.view.fleet)

    def request(self, session: int | None, blocks: list[int] | None = None, **members: Any) -> Any:
        """A request of a session; `blocks`: hashes of its beginnings, one every 512 tokens."""
        r = self.view.request(**members)
        if session is not None:
            rng = random.Random(session)
            r.session, r.session_set = rng.getrandbits(32) - 2**31, rng.getrandbits(32) - 2**31
        r.pool = self.view.fleet.models[b"m"]
        if blocks:
            module = self.view.require("tokenweir.core.body.prefix_blocks")
            r.blocks = module.new()
            add = self.lua.eval(b"function(module, blocks, a, to) module.add(blocks, 0ULL + a, to) end")
            for k, value in enumerate(blocks, 1):
                add(module, r.blocks, value, 512.0 * k)
        return r

    def pick(self, r: Any, *candidates: int, policy: str = "predictive") -> str | None:
        """The backend that a request gets by the policy, of these candidates or all; None: full."""
        chosen = list(candidates or range(1, len(self.names) + 1))
        self.view.view.now = self.now
        self.core.locate(self.memory, self.rings, self.view.fleet, r, self.now, LIFE)
        self.core.reckon(self.memory, self.view.view, r, self.lua.table_from(chosen), len(chosen))
        module = self.view.policy
        answer = module.pick(
            module.get(policy.encode()), self.view.view, r, self.lua.table_from(chosen), len(chosen)
        )
        index = answer[0] if isinstance(answer, tuple) else answer
        if index is None:
            return None
        self.verdict = (r.verdict or b"").decode()
        told = self.core.served(self.memory, self.view.fleet, r, index, self.now, LIFE, 0)
        self.told = (told[0] if isinstance(told, tuple) else told or b"").decode()
        r.index = index
        return self.names[index - 1]

    def end(self, r: Any, output: int = 100, cached: int | None = None) -> None:
        """It has ended well."""
        place = self.view.fleet.place[r.index]
        self.core.ended(self.memory, r, place, r.prompt, output, cached, self.now)

    def serve(self, session: int | None, *candidates: int, **members: Any) -> str | None:
        """One request from its pick to its end."""
        r = self.request(session, **members)
        name = self.pick(r, *candidates)
        if name is not None:
            self.end(r)
        return name

    def credit(self, r: Any) -> dict[str, float]:
        """What each backend is reckoned to have of a request's prompt."""
        everyone = list(range(1, len(self.names) + 1))
        self.core.locate(self.memory, self.rings, self.view.fleet, r, self.now, LIFE)
        self.core.reckon(self.memory, self.view.view, r, self.lua.table_from(everyone), len(everyone))
        credit = self.view.view.credit
        return {
            name: credit[self.view.fleet.place[k]]
            for k, name in enumerate(self.names, 1)
            if credit[self.view.fleet.place[k]] > 0
        }

    def home(self, session: int) -> str:
        """Its place on the ring."""
        r = self.request(session)
        self.core.locate(self.memory, self.rings, self.view.fleet, r, self.now, LIFE)
        return self.names[r.home - 1]

    def watch(self) -> None:
        """What a timer does."""
        everyone = list(range(1, len(self.names) + 1))
        use = self.view.require("tokenweir.core.policy.stay").use
        self.view.view.now = self.now
        self.core.watch(self.memory, self.view.view, self.lua.table_from(everyone), len(everyone), use)

    def heat(self, name: str) -> None:
        """Its load was seen above the mark to return, just now."""
        place = self.view.fleet.place[self.names.index(name) + 1]
        write = self.lua.eval(b"function(backend, now) backend.hot_at = now end")
        write(self.memory.backend[place], self.now)

    def fill(self, name: str, share: float) -> list[Any]:
        """Requests in flight that hold this share of a backend's memory, their prompts processed long ago."""
        index = self.names.index(name) + 1
        tokens = int(share * self.view.fleet.capacity[index])
        r = self.view.hold(index, prompt=tokens, mean=1.0, sd=0.0)
        self.view.load_module.first_token(self.view.loads[index], r)
        return [r]

    def release(self, name: str, held: list[Any]) -> None:
        """They have ended."""
        for r in held:
            self.view.load_module.release(self.view.loads[self.names.index(name) + 1], r)
