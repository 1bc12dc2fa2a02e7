"""`lua/tokenweir/core/sessions/known_sessions.lua`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.lua.sessions.sessions import halves

HOUR = 3_600_000.0
NOW = 10 * HOUR


class Memory:
    """One memory, with sessions given by number."""

    def __init__(self, lua: Any) -> None:
        module = lua.eval(b'require "tokenweir.core.sessions.known_sessions"')
        self.module = module[0] if isinstance(module, tuple) else module
        self.sets = self.module.new()

    def mark(self, number: int, now: float = NOW) -> bool:
        return bool(self.module.mark(self.sets, *halves(number), now, HOUR))

    def learn(self, number: int, age: float, now: float = NOW) -> None:
        self.module.learn(self.sets, *halves(number), now, age)

    def knows(self, number: int, now: float = NOW) -> bool:
        return bool(self.module.knows(self.sets, *halves(number), now, HOUR))


@pytest.fixture
def memory(lua: Any) -> Memory:
    """An empty memory."""
    return Memory(lua)


def test_a_session_is_known_once_it_was_served(memory: Memory) -> None:
    assert not memory.knows(1)
    assert memory.mark(1)
    assert memory.knows(1)
    assert not memory.knows(2)


def test_it_is_known_for_its_life_and_then_forgotten(memory: Memory) -> None:
    memory.mark(1)
    assert memory.knows(1, NOW + HOUR)
    assert not memory.knows(1, NOW + 1.3 * HOUR)


def test_each_request_prolongs_it(memory: Memory) -> None:
    for k in range(20):
        memory.mark(1, NOW + k * HOUR / 2)
    assert memory.knows(1, NOW + 9.5 * HOUR + HOUR)


def test_others_hear_of_it_when_it_is_new_and_again_after_a_quarter_of_its_life(memory: Memory) -> None:
    assert memory.mark(1)
    assert not memory.mark(1, NOW + HOUR / 5)
    assert memory.mark(1, NOW + HOUR / 3)
    assert not memory.mark(1, NOW + HOUR / 2)


def test_what_another_gateway_served_is_known_by_its_age(memory: Memory) -> None:
    memory.learn(1, HOUR / 2)
    assert memory.knows(1)
    assert not memory.knows(1, NOW + HOUR)
    memory.learn(2, 2 * HOUR)
    assert not memory.knows(2)


def test_old_news_do_not_make_a_session_older(memory: Memory) -> None:
    memory.mark(1)
    memory.learn(1, HOUR)
    assert memory.knows(1, NOW + HOUR)


def test_news_from_before_the_machine_started_are_nothing(memory: Memory) -> None:
    memory.learn(1, HOUR, now=1000.0)
    assert not memory.knows(1, 1000.0)


def test_a_hundred_thousand_sessions_fit_in_four_megabytes(memory: Memory) -> None:
    assert memory.module.SIZE <= 4 * 1024 * 1024
    for number in range(100_000):
        memory.mark(number)
    assert sum(not memory.knows(number) for number in range(100_000)) <= 20
    assert sum(memory.knows(number) for number in range(200_000, 300_000)) <= 2
    assert memory.module.count(memory.sets, NOW, HOUR) >= 99_980


def test_a_full_memory_forgets_the_oldest(memory: Memory) -> None:
    for number in range(1_000_000):
        memory.mark(number, NOW + number)
    late = sum(memory.knows(number, NOW + 1e6) for number in range(800_000, 1_000_000))
    early = sum(memory.knows(number, NOW + 1e6) for number in range(200_000))
    assert late > 199_000
    assert early < 40_000
