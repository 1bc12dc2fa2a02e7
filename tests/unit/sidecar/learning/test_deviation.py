"""The prediction deviation and the per-request error."""

from __future__ import annotations

import pytest

from sidecar.learning.deviation import FLEET, KEPT_MINUTES, MINUTE_MS, Deviation
from tokenweir.contract import names
from tokenweir.contract.records import Completion

NOW = 1_000 * MINUTE_MS + 1


def record(minute=999, mean=100, output=100, model="m", **members):
    values = {
        "id": "r",
        "gateway": "g",
        "time_ms": minute * MINUTE_MS + 5,
        "model": model,
        "backend": "a",
        "kind": "chat",
        "mean": mean,
        "output": output,
        "output_source": "usage",
        "outcome": "ok",
    }
    return Completion.model_validate(values | members)


def figures(*records, model=FLEET):
    deviation = Deviation()
    for one in records:
        deviation.add(one)
    return deviation.figures(NOW).get(model)


def test_errors_to_both_sides_cancel_in_the_deviation_and_add_up_in_the_error():
    found = figures(record(mean=150), record(mean=50))
    assert (found.deviation, found.error) == (0, pytest.approx(0.5))


def test_the_deviation_is_that_of_the_last_whole_minute():
    found = figures(record(minute=998, mean=900), record(minute=999, mean=120), record(minute=1000, mean=9))
    assert found.deviation == pytest.approx(0.2)
    assert found.answers == 1


def test_the_error_is_that_of_five_whole_minutes():
    found = figures(*(record(minute=1000 - k, mean=100 + 10 * k) for k in reversed(range(KEPT_MINUTES + 1))))
    assert found.error == pytest.approx((10 + 20 + 30 + 40 + 50) / 500)


def test_each_model_has_figures_of_its_own():
    records = [record(model="a", mean=110), record(model="b", mean=90)]
    assert figures(*records, model="a").deviation == pytest.approx(0.1)
    assert figures(*records).deviation == 0


def test_a_request_of_several_choices_counts_with_all_of_them():
    assert figures(record(mean=100, n=3, output=300)).deviation == 0


@pytest.mark.parametrize(
    "members",
    [
        {"outcome": "client_gone"},
        {"output": None},
        {"output_source": "none"},
        {"kind": "embeddings"},
        {"kind": "other"},
    ],
)
def test_answers_that_are_not_whole_say_nothing(members):
    assert figures(record(**members)) is None


def test_where_nothing_was_measured_nothing_is_shown():
    found = figures(record(minute=900))
    assert (found.deviation, found.error) == (None, None)


def test_a_record_that_comes_too_late_is_left_out():
    found = figures(record(minute=999), record(minute=500, mean=9000))
    assert found.deviation == 0


def test_the_number_of_models_is_bounded():
    deviation = Deviation()
    for number in range(names.MAX_MODELS + 50):
        deviation.add(record(model=f"m{number}"))
    found = deviation.figures(NOW)
    assert len(found) <= names.MAX_MODELS + 2
    assert FLEET in found
