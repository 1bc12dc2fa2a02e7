"""What `status` tells beside the table."""

from __future__ import annotations

import pytest

from tokenweir.cli.notices import alert_lines, duration, gateway_state, model_lines

ALERT = {"kind": "xid", "subject": "h100", "text": "XID 79", "since_ms": 1_000, "page": True}


def test_only_models_that_are_not_in_their_usual_state_have_a_line() -> None:
    models = {"a": {"unusual": ""}, "b": {"unusual": "level 1: new sessions are refused"}}
    assert model_lines(models) == ["model b: level 1: new sessions are refused"]


def test_an_alert_is_told_with_its_name_its_subject_since_when_and_why() -> None:
    assert alert_lines([ALERT, ALERT | {"page": False}], 31_000) == [
        "alert, somebody is wanted: xid of h100 for 30 s: XID 79",
        "alert: xid of h100 for 30 s: XID 79",
    ]


def test_of_very_many_alerts_the_oldest_are_shown_and_the_others_counted() -> None:
    lines = alert_lines([ALERT] * 25, 31_000)
    assert len(lines) == 21
    assert lines[-1] == "and 5 more alerts: GET /api/alerts"


@pytest.mark.parametrize(
    ("ms", "told"),
    [(-5, "0 s"), (40_000, "40 s"), (720_000, "12 min"), (12_600_000, "3.5 h"), (345_600_000, "4.0 d")],
)
def test_how_long_an_alert_stands_is_told_in_one_unit(ms: float, told: str) -> None:
    assert duration(ms) == told


def test_a_gateway_by_a_stale_snapshot_is_not_told_as_merely_ready() -> None:
    assert gateway_state(True, "ready") == "[green]ready[/]"
    assert "stale snapshot" in gateway_state(True, "ready (the snapshot is stale)")
    assert gateway_state(False, "answers 503 no backend is usable").endswith("no backend is usable")
