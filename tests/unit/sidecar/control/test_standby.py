"""When spares are put into service, and when they go back."""

from __future__ import annotations

from sidecar.control.standby import Demand, Spare, Spares
from tokenweir.config.control import StandbyConfig

CONFIG = StandbyConfig()


def spare(name="s1", promoted=False, available=True, capacity=1000.0):
    return Spare(name, capacity, promoted, available)


def run(spares, used, seconds, begin, listed, *, capacity=2000.0):
    """Ticks for so long with `used` tokens (a number, or a function of the second); returns the changes."""
    changes = []
    for k in range(seconds * 2):
        now = begin + 500.0 * k
        value = used(k / 2) if callable(used) else used
        extra = sum(one.capacity for one in listed if one.id in spares.promoted)
        shown = [spare(one.id, one.id in spares.promoted, one.available, one.capacity) for one in listed]
        change = spares.update(Demand(value, capacity + extra), shown, CONFIG, now)
        if change:
            changes.append((now - begin, change.backend, change.promote))
    return changes


def test_a_load_over_the_threshold_promotes_one_after_its_hold():
    assert run(Spares(), 1600, 20, 0, [spare()]) == [(3000, "s1", True)]


def test_one_is_promoted_at_a_time_and_no_more_than_needed():
    changes = run(Spares(), 2500, 60, 0, [spare("s1"), spare("s2"), spare("s3")])
    assert [backend for _, backend, _ in changes] == ["s3", "s2"]


def test_a_rising_load_promotes_before_it_is_there():
    ((at, _, _),) = run(Spares(), lambda second: 400 + 12 * second, 60, 0, [spare()])
    assert 400 + 12 * at / 1000 < 0.75 * 2000


def test_a_quiet_fleet_promotes_nobody():
    assert run(Spares(), 1000, 120, 0, [spare()]) == []


def test_without_any_backend_left_the_spare_comes():
    assert run(Spares(), 0, 10, 0, [spare()], capacity=0.0) == [(3000, "s1", True)]


def test_one_that_cannot_be_started_is_not_promoted():
    assert run(Spares(), 1900, 20, 0, [spare(available=False)]) == []


def test_it_goes_back_after_ten_quiet_minutes():
    spares = Spares()
    run(spares, 1600, 10, 0, [spare()])
    changes = run(spares, 500, 700, 10_000, [spare()])
    assert changes == [(600_000, "s1", False)]


def test_its_reason_tells_the_quiet_time_in_seconds():
    spares, config = Spares(), StandbyConfig(idle="20s")
    spares.promoted = ["s1"]
    demand = Demand(0.0, 2000.0)
    spares.update(demand, [spare(promoted=True)], config, 0.0)
    change = spares.update(demand, [spare(promoted=True)], config, 20_000.0)
    assert (change.promote, change.reason) == (False, "0% without it, below 45% for 20 s")


def test_it_stays_while_it_would_be_missed():
    spares = Spares()
    run(spares, 1600, 10, 0, [spare()])
    assert run(spares, 1000, 900, 10_000, [spare()]) == []


def test_the_last_promoted_goes_back_first():
    spares = Spares()
    run(spares, 2500, 60, 0, [spare("s1"), spare("s2")])
    changes = run(spares, 100, 1300, 60_000, [spare("s1"), spare("s2")])
    assert [backend for _, backend, _ in changes] == ["s1", "s2"]


def test_another_sidecar_goes_on_with_it():
    spares = Spares()
    run(spares, 1600, 10, 0, [spare()])
    other = Spares()
    other.restore(spares.dump())
    assert other.promoted == ["s1"]
