"""What the bench of transfers makes of its times."""

from __future__ import annotations

import pytest

from bench.transfer.__main__ import figures
from bench.transfer.decision import Decision


def test_a_case_tells_times_speed_and_what_computing_would_take() -> None:
    (case,) = figures({2048: [300.0, 200.0, 250.0]}, 131072)
    assert (case["transfer_ms"], case["transfer_ms_least"], case["transfer_ms_most"]) == (250, 200, 300)
    assert case["gb_per_s"] == pytest.approx(2048 * 131072 / 0.25 / 1e9)
    slow = next(server for server in case["servers"] if server["gpu"] == "T4")
    fast = next(server for server in case["servers"] if server["gpu"] == "H100")
    assert slow["prefill_ms"] == pytest.approx(2048 * 0.3287, rel=0.01)
    assert (slow["pays_here"], fast["pays_here"]) == (True, False)
    assert set(fast["pays_over"]) <= set(slow["pays_over"])


def test_the_decision_is_the_gateway_s() -> None:
    decision = Decision()
    # 1,000 tokens of 1,000 bytes: 1 ms at 1 GB/s, and 100 ms to compute.
    assert decision.pays(1000, 1000, 0.1, 1e9, 70)
    assert not decision.pays(1000, 1000, 0.1, 1e9, 90)
