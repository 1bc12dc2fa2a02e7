"""Names to addresses."""

from __future__ import annotations

import pytest

from sidecar import resolve
from sidecar.resolve import Resolver, choose, literal


class Names:
    """A name server."""

    def __init__(self) -> None:
        self.known: dict[str, list[str]] = {}
        self.asked = 0

    async def __call__(self, host: str) -> list[str]:
        self.asked += 1
        if host not in self.known:
            raise OSError(-2, "Name or service not known")
        return self.known[host]


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def moves() -> list[int]:
    return []


@pytest.fixture
def resolver(names, moves) -> Resolver:
    return Resolver(lambda: moves.append(1), names)


def test_an_address_is_its_own_address():
    assert literal("10.0.0.1") == "10.0.0.1"
    assert literal("fd00::0001") == "fd00::1"
    assert literal("gpu-a") is None


def test_of_several_addresses_the_present_one_stays_else_the_first_by_number_ipv4_first():
    several = ["fd00::1", "10.0.0.10", "10.0.0.9"]
    assert choose(several, None) == "10.0.0.9"
    assert choose(several, "10.0.0.10") == "10.0.0.10"
    assert choose(several, "10.0.0.7") == "10.0.0.9"
    assert choose([], "10.0.0.7") is None
    assert choose(["fe80::1%eth0"], None) is None


async def test_a_name_is_looked_up_and_a_move_is_told(resolver, names, moves):
    names.known["gpu-a"] = ["10.0.0.1"]
    assert resolver.address("gpu-a") is None
    await resolver.refresh()
    assert resolver.address("gpu-a") == "10.0.0.1"
    assert len(moves) == 1


async def test_a_name_is_believed_for_a_while(resolver, names):
    names.known["gpu-a"] = ["10.0.0.1"]
    resolver.address("gpu-a")
    for _ in range(5):
        await resolver.refresh()
    assert names.asked == 1


async def test_a_failing_backend_has_its_name_looked_up_again(resolver, names, moves, monkeypatch):
    monkeypatch.setattr(resolve, "RETRY_MS", 0)
    names.known["gpu-a"] = ["10.0.0.1"]
    resolver.address("gpu-a")
    await resolver.refresh()
    names.known["gpu-a"] = ["10.0.0.2"]
    resolver.suspect("gpu-a")
    await resolver.refresh()
    assert resolver.address("gpu-a") == "10.0.0.2"
    assert len(moves) == 2


async def test_a_name_server_that_is_away_keeps_the_last_address(resolver, names, monkeypatch):
    monkeypatch.setattr(resolve, "REFRESH_MS", 0)
    names.known["gpu-a"] = ["10.0.0.1"]
    resolver.address("gpu-a")
    await resolver.refresh()
    del names.known["gpu-a"]
    await resolver.refresh()
    assert resolver.address("gpu-a") == "10.0.0.1"
    assert resolver.failures == {"gpu-a": "Name or service not known"}


async def test_a_name_without_answer_is_tried_again_soon(resolver, names, monkeypatch):
    monkeypatch.setattr(resolve, "RETRY_MS", 0)
    resolver.address("gpu-a")
    await resolver.refresh()
    names.known["gpu-a"] = ["10.0.0.1"]
    await resolver.refresh()
    assert resolver.address("gpu-a") == "10.0.0.1"


async def test_names_that_no_backend_has_are_forgotten(resolver, names):
    names.known["gpu-a"] = ["10.0.0.1"]
    resolver.address("gpu-a")
    await resolver.refresh()
    resolver.keep(set())
    await resolver.refresh()
    assert names.asked == 1
