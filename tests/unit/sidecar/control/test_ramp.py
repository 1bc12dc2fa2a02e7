"""How a new backend comes into rotation."""

from __future__ import annotations

import pytest

from sidecar.control.ramp import Ramp, admitted
from tokenweir.config.control import RampConfig

CONFIG = RampConfig()
MINUTE = 60_000


def begun():
    ramp = Ramp()
    ramp.begin(CONFIG, 0)
    return ramp


def test_it_begins_with_five_percent_and_grows_by_five_a_minute():
    ramp = begun()
    assert ramp.share == 0.05
    for k in range(1, 11):
        ramp.update(CONFIG, k * MINUTE, None, False)
    assert ramp.share == pytest.approx(0.55)
    for k in range(11, 21):
        ramp.update(CONFIG, k * MINUTE, None, False)
    assert not ramp.going_on
    assert ramp.reason is None


def test_it_pauses_while_it_does_worse_and_makes_up_for_nothing():
    ramp = begun()
    ramp.update(CONFIG, 10 * MINUTE, "slow", False)
    assert ramp.share == 0.05
    assert ramp.reason == "ramp: held at 5% of its share: slow"
    ramp.update(CONFIG, 11 * MINUTE, None, False)
    assert ramp.share == pytest.approx(0.10)


def test_it_hurries_while_others_are_refusing():
    ramp = begun()
    ramp.update(CONFIG, MINUTE, None, True)
    assert ramp.share == pytest.approx(0.65)
    assert "others are refusing" in ramp.reason


def test_switched_off_there_is_none():
    ramp = Ramp()
    ramp.begin(RampConfig(enabled=False), 0)
    assert not ramp.going_on
    ramp = begun()
    ramp.update(RampConfig(enabled=False), 1000, None, False)
    assert ramp.share == 1


def test_another_sidecar_goes_on_with_it():
    ramp = begun()
    ramp.update(CONFIG, 4 * MINUTE, None, False)
    other = Ramp()
    other.restore(ramp.dump(), 1_000_000)
    assert other.share == pytest.approx(0.25)
    other.update(CONFIG, 1_000_000 + MINUTE, None, False)
    assert other.share == pytest.approx(0.30)


def test_a_new_one_never_gets_more_than_its_share_and_where_all_are_new_all_are():
    assert admitted([1.0, 0.05, 1.0]) == [1.0, 0.05, 1.0]
    assert admitted([0.05, 0.05]) == [1.0, 1.0]
    assert admitted([0.5, 0.25]) == [1.0, 0.5]
    assert admitted([]) == []
