"""When looks begin."""

from __future__ import annotations

import pytest

from sidecar.telemetry.slots import SLOTS, to_slot


@pytest.mark.parametrize("now", [0.0, 13.7, 1e9 + 0.3])
@pytest.mark.parametrize("wait", [50, 499, 4000])
def test_looks_begin_at_shared_moments_near_the_wanted_one(now, wait):
    at = now + to_slot(now, wait, 500)
    slot = 500 / SLOTS
    assert abs(at / slot - round(at / slot)) < 1e-6
    assert abs(at - now - wait) <= slot


def test_no_look_begins_in_the_past():
    assert to_slot(1000.0 + 500 / SLOTS / 4, 0, 500) == 0
