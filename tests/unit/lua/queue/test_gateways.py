"""`lua/tokenweir/core/queue/gateways.lua`: one order over several gateways, approximately."""

from __future__ import annotations

import pytest

from tests.unit.lua.queue.queues import LUA, Queues

GATEWAYS = LUA.eval(b'require "tokenweir.core.queue.gateways"')
LEASE_MS = 200


class Fleet:
    """Gateways before the same backends: what one releases is free for all, who hear of it by leases."""

    def __init__(self, *queues: Queues) -> None:
        self.queues = queues
        self.now = 1000.0
        self.free = 0
        self.freed_at = [0.0] * len(queues)
        self.order: list[str] = []

    def tell(self) -> None:
        """The leases go round."""
        told = []
        for queues in self.queues:
            lowest = queues.queues[0][b"own"].lowest if queues.waiters else None
            told.append(GATEWAYS.tell(queues.shared, lowest) if lowest is not None else None)
        for k, queues in enumerate(self.queues):
            others = [pair for j, pair in enumerate(told) if j != k and pair is not None]
            if others:
                front, clock = min(pair[0] for pair in others), max(pair[1] for pair in others)
                GATEWAYS.hear(queues.shared, front, clock, self.now)
            else:
                GATEWAYS.hear(queues.shared, None, None, self.now)

    def step(self, releases: int) -> None:
        """A lease's time passes, in which the first gateway releases places; it sees them first."""
        self.now += LEASE_MS
        self.free += releases
        for queues in self.queues:
            queues.now = self.now
        self.queues[0].release()
        for queues in self.queues:
            while self.free and (name := queues.look()):
                self.free -= 1
                self.order.append(name)
        for queues in self.queues[1:]:
            queues.release()
        self.tell()


@pytest.fixture
def pair() -> Fleet:
    """Two gateways; the first is flooded by one key, and all places are its own."""
    flooded, other = Queues(), Queues()
    for k in range(200):
        flooded.push(f"flood-{k}", flow="flood")
    fleet = Fleet(flooded, other)
    fleet.now = flooded.now
    fleet.tell()
    return fleet


def test_a_single_request_is_not_starved_by_the_flood_of_another_gateway(pair: Fleet) -> None:
    for _ in range(10):
        pair.step(1)
    pair.queues[1].now = pair.now
    pair.queues[1].push("single")
    for _ in range(12):
        pair.step(1)
    assert "single" in pair.order


def test_engines_are_kept_fed_by_whoever_has_waiters(pair: Fleet) -> None:
    pair.queues[1].push("single")
    for _ in range(60):
        pair.step(2)
    assert len(pair.order) >= 110


def test_what_another_gateway_cannot_use_is_left_to_it_a_few_times_and_then_rarely() -> None:
    queues = Queues()
    for k in range(600):
        queues.push(f"flood-{k}", flow="flood")
    served = []
    for _ in range(600):
        GATEWAYS.hear(queues.shared, 0, 0, queues.now)
        queues.now += 100
        queues.release()
        served.append(queues.look())
    a_time = GATEWAYS.YIELD_MS // 100
    assert GATEWAYS.MOST_YIELDS * a_time <= served[:60].count(None) <= (GATEWAYS.MOST_YIELDS + 1) * a_time
    assert a_time <= served[-300:].count(None) <= 4 * a_time


def test_a_gateway_that_falls_silent_holds_nobody_back() -> None:
    queues = Queues()
    for k in range(10):
        queues.push(f"flood-{k}", flow="flood")
    for _ in range(4):
        queues.serve(passed=10)
    GATEWAYS.hear(queues.shared, 0, 0, queues.now)
    queues.now += GATEWAYS.STALE_MS
    queues.release()
    assert queues.look() is not None


def test_where_nobody_waits_elsewhere_nothing_is_held_back() -> None:
    queues = Queues()
    queues.push("a")
    GATEWAYS.hear(queues.shared, None, None, queues.now)
    assert not GATEWAYS.somebody(queues.shared, queues.now)
    queues.release()
    assert queues.look() == "a"


def test_who_begins_to_wait_stands_where_the_others_are() -> None:
    queues = Queues()
    GATEWAYS.hear(queues.shared, 90_100, 90_000, queues.now)
    queues.push("late")
    front, clock = GATEWAYS.tell(queues.shared, queues.queues[0][b"own"].lowest)
    assert clock == 90_000
    assert 90_000 < front < 90_200


def served_slowly(gap_ms: float) -> Queues:
    """A queue that has served some, one in so many ms."""
    queues = Queues()
    for k in range(20):
        queues.push(str(k), work=100)
    for _ in range(10):
        queues.serve(passed=gap_ms)
        queues.expect(next(iter(queues.waiters)))
    return queues


def rising(queues: Queues, clock: float, seconds: float) -> float:
    """V rises elsewhere, by 100 in 100 ms; returns where it is then."""
    for _ in range(round(10 * seconds)):
        queues.now += 100
        clock += 100
        GATEWAYS.hear(queues.shared, clock, clock, queues.now)
    return clock


def test_a_queue_far_behind_is_taken_to_be_a_little_behind() -> None:
    queues = served_slowly(50)
    clock = rising(queues, 1e6, 3)
    _, own = GATEWAYS.tell(queues.shared, 0)
    assert clock - 6000 < own < clock


def test_who_waits_at_a_slow_gateway_is_not_moved_back_with_the_fast_one_s_order() -> None:
    queues = served_slowly(20_000)
    queues.drain()
    clock = rising(queues, 1e6, 3)
    queues.push("single")
    lowest = queues.queues[0][b"own"].lowest
    before, _ = GATEWAYS.tell(queues.shared, lowest)
    clock = rising(queues, clock, 4)
    after, _ = GATEWAYS.tell(queues.shared, lowest)
    assert after == before
    assert clock - after > 3000
