"""The figures by which a replay is held against the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.engine.recording import Recording, Second, Served
from bench.engine.replay import Replay
from bench.report import Bar

LIMIT = 0.15
"""How far a figure of the replay may be from the run's."""

LATENCIES: dict[str, Callable[[Served], float]] = {
    "ttft_s": lambda served: served.first_token - served.queued,
    "tpot_ms": lambda served: 1e3 * (served.last_token - served.first_token) / (served.output - 1),
    "e2e_s": lambda served: served.last_token - served.queued,
}
QUANTILES = {"median": 50, "p99": 99}
CURVES: dict[str, Callable[[Second], float]] = {
    "running": lambda second: second.running,
    "waiting": lambda second: second.waiting,
    "kv": lambda second: second.kv,
}


def _quantile(requests: Sequence[Served], latency: str, quantile: str) -> float:
    return float(np.percentile([LATENCIES[latency](served) for served in requests], QUANTILES[quantile]))


def latencies(recording: Recording, replayed: Replay) -> list[dict[str, Any]]:
    """One case for each latency and quantile: the run's, the replay's, and how far the second is from the
    first."""
    cases = []
    for latency in LATENCIES:
        for quantile in QUANTILES:
            real = _quantile(recording.requests, latency, quantile)
            emulated = _quantile(replayed.requests, latency, quantile)
            cases.append(
                {
                    "case": {"figure": latency, "quantile": quantile},
                    "real": round(real, 3),
                    "emulated": round(emulated, 3),
                    "error": round(emulated / real - 1, 4),
                }
            )
    return cases


def curves(recording: Recording, replayed: Replay) -> list[dict[str, Any]]:
    """One case for each curve: its mean in run and replay, and the mean distance of both as a share of the
    run's mean.

    The shorter of both goes on at its last value."""
    cases = []
    seconds = max(len(recording.curve), len(replayed.curve))
    for name, value in CURVES.items():
        real, emulated = (
            np.array([value(second) for second in curve] + [value(curve[-1])] * (seconds - len(curve)))
            for curve in (recording.curve, replayed.curve)
        )
        cases.append(
            {
                "case": {"curve": name, "seconds": seconds},
                "real": round(float(real.mean()), 4),
                "emulated": round(float(emulated.mean()), 4),
                "error": round(float(np.abs(real - emulated).mean() / real.mean()), 4),
            }
        )
    return cases


def bars(cases: Sequence[dict[str, Any]]) -> list[Bar]:
    """Every figure within 15 % of the run's."""
    found = []
    for case in cases:
        names = case["case"]
        name = f"{names['figure']}_{names['quantile']}" if "figure" in names else f"curve_{names['curve']}"
        found.append(Bar(f"{name}_error", abs(case["error"]), "<=", LIMIT))
    return found
