"""Level 4 of the breaker."""

from __future__ import annotations

from sidecar.control.quorum import Quorum
from tokenweir.config.control import BreakerConfig

CONFIG = BreakerConfig()


def test_fewer_than_half_of_the_backends_send_a_model_to_its_fallback_at_once():
    quorum = Quorum()
    assert not quorum.update(2, 4, 1, CONFIG, 0)
    assert quorum.update(1, 4, 1, CONFIG, 500)
    assert quorum.fallback.on
    assert "1 of 4 backends are usable" in quorum.reason


def test_it_goes_back_once_enough_have_been_there_for_a_while():
    quorum = Quorum()
    quorum.update(1, 4, 1, CONFIG, 0)
    assert not quorum.update(2, 4, 1, CONFIG, 1000)
    assert not quorum.update(1, 4, 1, CONFIG, 4000)
    assert not quorum.update(2, 4, 1, CONFIG, 5000)
    assert not quorum.update(3, 4, 1, CONFIG, 9000)
    assert quorum.update(3, 4, 1, CONFIG, 10_000)
    assert quorum.reason == ""


def test_without_a_fallback_that_serves_there_is_none():
    quorum = Quorum()
    assert not quorum.update(0, 4, 0, CONFIG, 0)
    quorum.update(0, 4, 1, CONFIG, 0)
    assert quorum.update(0, 4, 0, CONFIG, 500)
    assert not quorum.fallback.on


def test_a_model_that_never_had_a_backend_has_lost_none():
    assert not Quorum().update(0, 0, 1, CONFIG, 0)


def test_the_share_is_configurable():
    assert not Quorum().update(0, 4, 1, BreakerConfig(quorum=0), 0)
    assert Quorum().update(3, 4, 1, BreakerConfig(quorum=1), 0)
