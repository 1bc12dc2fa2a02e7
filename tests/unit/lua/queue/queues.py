"""Queues of the core, as a gateway has them: one per worker over shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenweir.luavm import new_runtime

LUA = new_runtime()
QUEUE = LUA.eval(b'require "tokenweir.core.queue"')
MEMORY = LUA.eval(b'require "tokenweir.core.queue.memory"')
CLASSES = {"high": (4, 0.1), "normal": (2, 0.1), "low": (1, 0.05)}

Try = Callable[[str, int | None], Any]


def settings(
    order: str = "fair",
    window: int = 8,
    pass_ms: int = 2000,
    **classes: tuple[float, float],
) -> Any:
    """Settings of a queue; a class is given as (weight, floor)."""
    table = LUA.table_from({b"order": order.encode(), b"window": window, b"pass_ms": pass_ms})
    table[b"classes"] = LUA.table_from(
        {
            name.encode(): LUA.table_from({b"weight": weight, b"floor": floor})
            for name, (weight, floor) in {**CLASSES, **classes}.items()
        }
    )
    return table


class Queues:
    """The queue of one model in `workers` workers; waiters are known by their names."""

    def __init__(self, workers: int = 1, **changes: Any) -> None:
        self.settings = settings(**changes)
        self.shared = MEMORY.queue()
        self.queues = [QUEUE.new(self.settings) for _ in range(workers)]
        own = [MEMORY.line() for _ in range(workers)]
        for k, queue in enumerate(self.queues):
            others = [line for j, line in enumerate(own) if j != k]
            QUEUE.join(queue, self.shared, own[k], LUA.table_from(others), len(others))
        self.waiters: dict[str, tuple[int, Any]] = {}
        self.now = 1000.0
        self.tide = 0.0

    def push(
        self,
        name: str,
        *,
        flow: str = "",
        priority: str = "normal",
        work: float = 100,
        worker: int = 0,
        output: str = "low",
        weight: float = 1,
        allowed: float | None = None,
        rate: float | None = None,
    ) -> None:
        """A request comes to wait, for `allowed` ms at most; each comes a ms after the one before. `rate` is
        the work that goes in a ms by the fleet's figures."""
        self.now += 1
        waiter = LUA.table_from(
            {
                b"name": name.encode(),
                b"flow": (flow or name).encode(),
                b"priority": priority.encode(),
                b"long": output == "high",
                b"work": work,
                b"weight": weight,
                b"bytes": 10,
                b"label": (flow or name).encode(),
            }
        )
        if allowed is not None:
            waiter[b"until_ms"] = self.now + allowed
        QUEUE.push(self.queues[worker], waiter, self.now, None if rate is None else lambda: rate)
        self.waiters[name] = (worker, waiter)

    def leave(self, name: str) -> None:
        """A waiter gives up."""
        worker, waiter = self.waiters.pop(name)
        QUEUE.remove(self.queues[worker], waiter, self.now)

    def look(
        self,
        worker: int = 0,
        fits: Try = lambda name, apart: True,
        hold: Callable[[str], int | None] = lambda name: None,
    ) -> str | None:
        """One worker looks for one to serve; returns whom it served."""

        def attempt(waiter: Any, apart: Any, tide: float | None = None) -> Any:
            found = fits(waiter[b"name"].decode(), apart)
            return found if found and tide in (None, self.tide) else None

        def held(waiter: Any, before: Any) -> Any:
            return hold(waiter[b"name"].decode())

        found = QUEUE.next(self.queues[worker], self.now, self.tide, attempt, held)
        if found is None:
            return None
        waiter = found[0] if isinstance(found, tuple) else found
        name = str(waiter[b"name"].decode())
        del self.waiters[name]
        return name

    def release(self) -> None:
        """A backend's place was given back."""
        self.tide += 1

    def serve(self, passed: float = 0.0, **look: Any) -> str | None:
        """A place is given back, and the workers look in turn, again and again, until one serves."""
        self.now += passed
        self.release()
        for _ in range(2 * len(self.queues) + 10):
            for worker in range(len(self.queues)):
                name = self.look(worker, **look)
                if name:
                    return name
        return None

    def drain(self) -> list[str]:
        """Everybody is served, one place at a time."""
        names = []
        while self.waiters:
            name = self.serve(passed=10)
            assert name
            names.append(name)
        return names

    def at_least(self, name: str, ms: float | None) -> float | None:
        """What a waiter has to have time for, whose whole wait is reckoned as `ms`."""
        self.expect(name)
        worker, waiter = self.waiters[name]
        least: float | None = QUEUE.at_least(self.queues[worker], waiter, ms)
        return least

    def expect(self, name: str) -> tuple[int, float | None, float | None]:
        """(position, ms, most) of a waiter."""
        return self.expect_whole(name)[:3]

    def expect_whole(self, name: str) -> tuple[int, float | None, float | None, float | None]:
        """(position, ms, most, whole) of a waiter."""
        worker, waiter = self.waiters[name]
        for queue in self.queues:
            QUEUE.measure(queue, self.now)
        position, ms, most, whole = QUEUE.expect(self.queues[worker], waiter, self.now)
        return position, ms, most, whole
