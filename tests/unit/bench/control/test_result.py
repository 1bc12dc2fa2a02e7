"""How the control bench counts."""

from __future__ import annotations

import pytest

from bench.control.client import Record
from bench.control.result import after, quantile


def record(**members: object) -> Record:
    made = Record(id="r", sent=1.0, known=False, priority="low", max_tokens=10, ended=2.0)
    for name, value in members.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ({"status": 200}, "ok"),
        ({"status": 200, "code": "upstream_broke"}, "failed"),
        ({"status": 429, "code": "overloaded"}, "refused"),
        ({"status": 503, "code": "new_sessions_rejected"}, "refused"),
        ({"status": 502, "code": "upstream_broke"}, "failed"),
        ({"status": 0, "code": "ClientOSError"}, "failed"),
    ],
)
def test_a_request_is_answered_refused_or_failed(members: dict[str, object], kind: str) -> None:
    made = record(**members)
    found = {"ok": made.ok, "refused": made.refused, "failed": made.failed}
    assert [name for name, holds in found.items() if holds] == [kind]


def test_what_was_never_seen_has_no_time() -> None:
    assert after(3.5, 1.0) == 2.5
    assert after(None, 1.0) is None
    assert after(3.5, None) is None


def test_quantiles_are_values_that_were_there() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0], 0.99) == 1.0
    assert quantile([], 0.5) is None
