"""`numbering.lua`: names have places in the shared region that stay, and are recycled when empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tokenweir.luavm import new_runtime


class Places:
    """The numbering of a region of this test's own."""

    def __init__(self) -> None:
        self.lua = new_runtime()
        self.lua.require(b"tokenweir.region").open(b"/tmp")
        self.lua.require(b"tokenweir.scoreboard").claim(1)
        self.lua.execute(b"require('ffi').fill(require('tokenweir.region').map().backend_name, 1024 * 320)")
        self.numbering = self.lua.require(b"tokenweir.numbering")

    def backend(self, name: str) -> int:
        """The place."""
        answer = self.numbering.backend(name.encode())
        place = answer[0] if isinstance(answer, tuple) else answer
        assert isinstance(place, int), answer
        return place

    def age(self, place: int) -> None:
        """As if nobody had touched the name for long."""
        self.lua.execute(f"require('tokenweir.region').map().backend_name[{place}].seen = -1e9".encode())

    def set_load(self, place: int, n: int) -> None:
        """Puts load on a place."""
        self.lua.execute(f"require('tokenweir.scoreboard').own().load[{place}].n = {n}".encode())


@pytest.fixture
def places() -> Iterator[Places]:
    places = Places()
    yield places
    places.lua.execute(b"for k = 0, 1023 do require('tokenweir.scoreboard').own().load[k].n = 0 end")


def test_a_name_keeps_its_place(places: Places) -> None:
    assert [places.backend(name) for name in ("a", "b", "a", "c", "b")] == [0, 1, 0, 2, 1]
    assert places.numbering.backend_at(1) == b"b"


def test_names_that_begin_alike_are_different(places: Places) -> None:
    assert places.backend("gpu-1") != places.backend("gpu-10")


def test_another_process_that_opens_the_region_finds_the_same_places(places: Places) -> None:
    place = places.backend("a"), places.backend("b")
    again = new_runtime()
    again.require(b"tokenweir.region").open(b"/tmp")
    assert again.require(b"tokenweir.numbering").backend(b"b") in (place[1], (place[1], None))


def test_when_all_places_are_in_use_a_new_name_is_refused(places: Places) -> None:
    for number in range(1024):
        places.backend(f"gpu-{number}")
    place, error = places.numbering.backend(b"one-more")
    assert place is None
    assert b"all 1024 places are in use" in error


def test_the_place_of_a_forgotten_name_is_recycled_unless_something_is_in_flight_there(
    places: Places,
) -> None:
    for number in range(1024):
        places.backend(f"gpu-{number}")
    places.age(5)
    places.age(9)
    places.set_load(5, 1)
    assert places.backend("new") == 9
    assert places.numbering.backend_at(9) == b"new"
    assert places.backend("gpu-5") == 5


def test_a_very_long_name_has_a_place_of_its_own(places: Places) -> None:
    assert places.backend("x" * 300 + "a") != places.backend("x" * 300 + "b")
    assert places.backend("x" * 300 + "a") == places.backend("x" * 300 + "a")
