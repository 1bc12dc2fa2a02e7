"""Indicators beyond their limits are alerts; what is not measured is none."""

from __future__ import annotations

import pytest

from sidecar.control.alerts import Alerts, Kind
from sidecar.control.indicator_alerts import IndicatorAlerts
from sidecar.telemetry.indicators import Indicator, deviation
from tests.unit.sidecar.control.scene import fleet


class Told:
    """Indicators as a test tells them."""

    def __init__(self):
        self.fragmentation = Indicator(None, 0.15, "share", "not measured")
        self.context_switch = Indicator(None, 50.0, "ms", "not measured")

    def now(self):
        return {"fragmentation": self.fragmentation, "context_switch": self.context_switch}


@pytest.fixture
def stage():
    return fleet("a")


@pytest.fixture
def told(stage):
    stage["a"].record.indicators = Told()
    return stage["a"].record.indicators


@pytest.fixture
def alerts():
    return Alerts()


@pytest.fixture
def watch(stage, alerts):
    """Lets seconds pass."""
    deviations = {}
    watched = IndicatorAlerts(stage.fleet, alerts, lambda: deviations)
    now = [0.0]

    def passes(seconds):
        for _ in range(seconds * 2):
            now[0] += 500
            watched.step(now[0])

    passes.deviations = deviations
    return passes


def test_what_stays_beyond_its_limit_is_an_alert_until_it_stays_within(told, watch, alerts):
    told.fragmentation = Indicator(0.31, 0.15, "share", "median of the last 20 readings of vllm")
    watch(10)
    assert alerts.standing == {}
    watch(10)
    alert = alerts.standing[Kind.FRAGMENTATION, "a"]
    assert not alert.page
    assert alert.text == (
        "share of the KV memory handed out that holds no token: 31%, over 15% "
        "(median of the last 20 readings of vllm)"
    )
    told.fragmentation = Indicator(0.10, 0.15, "share", "")
    watch(25)
    assert (Kind.FRAGMENTATION, "a") in alerts.standing
    watch(15)
    assert alerts.standing == {}


def test_one_that_swings_about_its_limit_is_no_alert(told, watch, alerts):
    for _ in range(10):
        told.context_switch = Indicator(80.0, 50.0, "ms", "")
        watch(5)
        told.context_switch = Indicator(20.0, 50.0, "ms", "")
        watch(5)
    assert alerts.raised[Kind.CONTEXT_SWITCH] == 0


def test_a_context_switch_is_told_in_ms(told, watch, alerts):
    told.context_switch = Indicator(80.0, 50.0, "ms", "at least")
    watch(20)
    assert "80 ms, over 50 ms" in alerts.standing[Kind.CONTEXT_SWITCH, "a"].text


def test_what_is_not_measured_raises_none_and_ends_one(told, watch, alerts):
    watch(60)
    assert alerts.standing == {}
    told.context_switch = Indicator(80.0, 50.0, "ms", "")
    watch(20)
    told.context_switch = Indicator(None, 50.0, "ms", "not measured")
    watch(40)
    assert alerts.standing == {}


def test_the_prediction_deviation_is_told_by_model(watch, alerts):
    watch.deviations.update({"m": deviation(0.4, 20), "n": deviation(0.1, 20), "o": deviation(0.4, 3)})
    watch(20)
    assert list(alerts.standing) == [(Kind.PREDICTION_DEVIATION, "m")]
    watch.deviations.clear()
    watch(5)
    assert alerts.standing == {}


def test_the_control_loop_tells_them(stage, told):
    told.fragmentation = Indicator(0.31, 0.15, "share", "")
    stage.run(20)
    assert (Kind.FRAGMENTATION, "a") in stage.loop.alerts.standing


def test_who_takes_over_goes_on_with_an_alert_until_its_cause_is_gone(told, watch, alerts):
    alerts.put(Kind.FRAGMENTATION, "a", "told by the leader before", 1)
    alerts.put(Kind.CONTEXT_SWITCH, "a", "told by the leader before", 1)
    told.fragmentation = Indicator(0.31, 0.15, "share", "")
    watch(1)
    assert [(kind, one.since_ms) for (kind, _), one in alerts.standing.items()] == [
        (Kind.FRAGMENTATION, 1),
        (Kind.CONTEXT_SWITCH, 1),
    ]
    told.fragmentation = told.context_switch = Indicator(0.0, 0.15, "share", "")
    watch(45)
    assert alerts.standing == {}
