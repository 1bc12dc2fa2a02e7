"""`lua/tokenweir/core/sessions/known_sessions.lua`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.lua.sessions.sessions import halves

HOUR = 3_600_000.0
NOW = 10 * HOUR

MANY = b"""
local int32 = require("ffi").typeof("int32_t")
local memory, hash = require "tokenweir.core.sessions.known_sessions", require "tokenweir.core.hash"

local function halves(number)
  local h = hash.string(tostring(number))
  return tonumber(int32(h)), tonumber(int32(require("bit").rshift(h, 32)))
end

local many = {}

function many.mark(sets, first, last, now, every, life)
  for number = first, last do
    local a, b = halves(number)
    memory.mark(sets, a, b, now + every * (number - first), life)
  end
end

function many.knows(sets, first, last, now, life)
  local count = 0
  for number = first, last do
    local a, b = halves(number)
    count = count + (memory.knows(sets, a, b, now, life) and 1 or 0)
  end
  return count
end

return many
"""
"""A memory with very many sessions, without a call from Python for each."""


class Memory:
    """One memory, with sessions given by number."""

    def __init__(self, lua: Any) -> None:
        module = lua.eval(b'require "tokenweir.core.sessions.known_sessions"')
        self.module = module[0] if isinstance(module, tuple) else module
        self.sets = self.module.new()
        self.many = lua.execute(MANY)

    def mark(self, number: int, now: float = NOW) -> bool:
        return bool(self.module.mark(self.sets, *halves(number), now, HOUR))

    def learn(self, number: int, age: float, now: float = NOW) -> None:
        self.module.learn(self.sets, *halves(number), now, age)

    def knows(self, number: int, now: float = NOW) -> bool:
        return bool(self.module.knows(self.sets, *halves(number), now, HOUR))

    def mark_many(self, first: int, end: int, every: float = 0.0) -> None:
        """Mark the sessions from `first` up to `end`, one every so many ms from NOW on."""
        self.many.mark(self.sets, first, end - 1, NOW, every, HOUR)

    def known_of(self, first: int, end: int, now: float = NOW) -> int:
        """How many of these are known."""
        return int(self.many.knows(self.sets, first, end - 1, now, HOUR))


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
    memory.mark_many(0, 100_000)
    assert memory.known_of(0, 100_000) >= 99_980
    assert memory.known_of(200_000, 300_000) <= 2
    assert memory.module.count(memory.sets, NOW, HOUR) >= 99_980


def test_a_full_memory_forgets_the_oldest(memory: Memory) -> None:
    memory.mark_many(0, 1_000_000, every=1.0)
    assert memory.known_of(800_000, 1_000_000, NOW + 1e6) > 199_000
    assert memory.known_of(0, 200_000, NOW + 1e6) < 40_000
