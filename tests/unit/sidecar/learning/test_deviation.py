"""How far predictions are from outputs, by model, of what really ended."""

from __future__ import annotations

import pytest

from sidecar.learning.deviation import KEPT, LEAST, Deviations
from tokenweir.contract.records import Completion


def record(model="m", mean=100.0, output=100.0, **members):
    return Completion.model_validate(
        {
            "id": "1",
            "gateway": "g",
            "time_ms": 1,
            "model": model,
            "backend": "a",
            "kind": "chat",
            "mean": mean,
            "output": output,
            "output_source": "usage",
            "outcome": "ok",
            **members,
        }
    )


def test_too_little_is_not_measured():
    deviations = Deviations()
    for _ in range(LEAST - 1):
        deviations.add(record())
    assert deviations.now()["m"].value is None
    deviations.add(record())
    assert deviations.now()["m"].value == 0


def test_single_requests_may_differ_where_the_sums_agree():
    deviations = Deviations()
    for number in range(100):
        deviations.add(record(mean=100, output=50 if number % 2 else 150))
    assert deviations.now()["m"].value == 0


def test_a_prediction_that_is_too_low_is_an_alert():
    deviations = Deviations()
    for _ in range(100):
        deviations.add(record(mean=70, output=100))
    found = deviations.now()["m"]
    assert found.value == pytest.approx(0.3)
    assert found.alert
    assert "below" in found.text


def test_several_choices_are_several_outputs():
    deviations = Deviations()
    for _ in range(100):
        deviations.add(record(mean=50, output=200, n=4))
    assert deviations.now()["m"].value == 0


@pytest.mark.parametrize(
    "members", [{"outcome": "upstream_error"}, {"output": None}, {"output_source": "none"}, {"mean": 0}]
)
def test_what_did_not_end_well_or_is_not_known_does_not_count(members):
    deviations = Deviations()
    deviations.add(record(**members))
    assert deviations.now() == {}


def test_what_is_long_past_is_forgotten():
    deviations = Deviations()
    for _ in range(200):
        deviations.add(record(mean=500))
    for _ in range(KEPT):
        deviations.add(record(mean=100))
    assert deviations.now()["m"].value == 0
