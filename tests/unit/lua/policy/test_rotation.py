"""`core/policy/rotation.lua`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.lua.fleets import to_lua


@pytest.mark.parametrize("drawn", [0.0, 0.3, 0.999])
def test_a_round_meets_each_once_from_a_random_place_on(
    lua: Any, require: Callable[[str], Any], drawn: float
) -> None:
    rotation = require("tokenweir.core.policy.rotation")
    shift = rotation.start(to_lua(lua, {"random": lambda: drawn}), 5)
    places = [rotation.at(k, shift, 5) for k in range(1, 6)]
    assert sorted(places) == [1, 2, 3, 4, 5]
    assert places[0] == 1 + int(5 * drawn)
