"""`lua/tokenweir/core/backend/step_time.lua`: how long a decode step takes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.lua.fleets import COST, backend, build, snapshot


def test_a_step_takes_its_base_and_more_for_each_sequence_and_each_token_held(lua: Any, require: Any) -> None:
    fleet, _ = build(lua, snapshot(backend("a"), backend("b", cost={**COST, "base": 20.0})))
    of = require("tokenweir.core.backend.step_time").of
    assert of(fleet, 1, 0, 0) == COST["base"]
    assert of(fleet, 1, 8, 4000) == pytest.approx(9 + 8 * 0.06 + 4000 * 0.0001)
    assert of(fleet, 2, 8, 4000) - of(fleet, 1, 8, 4000) == pytest.approx(11)
