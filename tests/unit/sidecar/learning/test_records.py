"""Which completion records are believed."""

from __future__ import annotations

import pytest

from sidecar.learning.records import PoisonedError, batch, believe

NOW = 1_800_000_000_000
GOOD = {
    "id": "r1",
    "gateway": "g1",
    "time_ms": NOW,
    "model": "m",
    "backend": "a",
    "kind": "chat",
    "output": 100,
    "output_source": "usage",
    "prompt": 50,
    "outcome": "ok",
}


def test_a_good_record_is_believed():
    assert believe(GOOD, {"a"}, NOW).output == 100


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"output": float("nan")}, "invalid"),
        ({"output": float("inf")}, "invalid"),
        ({"output": -1}, "invalid"),
        ({"prompt": -1}, "invalid"),
        ({"n": 0}, "invalid"),
        ({"total_ms": float("nan")}, "invalid"),
        ({"model": ""}, "invalid"),
        ({"kind": "music"}, "invalid"),
        ({"outcome": "maybe"}, "invalid"),
        ({"backend": "zz"}, "unknown_backend"),
        ({"output": 1e12}, "absurd_tokens"),
        ({"prompt": 10**9}, "absurd_tokens"),
        ({"cached": 51}, "absurd_tokens"),
        ({"total_ms": 1e12}, "absurd_time"),
        ({"time_ms": NOW + 10**8}, "absurd_time"),
    ],
)
def test_a_poisoned_record_is_refused_with_a_reason(members, reason):
    with pytest.raises(PoisonedError, match=reason):
        believe(GOOD | members, {"a"}, NOW)


@pytest.mark.parametrize("value", [None, 3, "text", [], {}])
def test_what_is_no_record_is_refused(value):
    with pytest.raises(PoisonedError, match="invalid"):
        believe(value, {"a"}, NOW)


def test_a_batch_is_a_list():
    assert batch(b'[{"a": 1}, 2]') == [{"a": 1}, 2]
    for text in (b"", b"{", b"{}", b"[" * 100_000):
        with pytest.raises(PoisonedError):
            batch(text)
