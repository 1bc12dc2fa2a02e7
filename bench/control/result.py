"""What a scenario shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.control.stage import Stage
from bench.report import Bar


@dataclass
class Result:
    """Times in s from the moment at which the condition was true; None: it never happened."""

    detected_s: float | None
    """The decision stood in a snapshot."""
    acted_s: float | None
    """It reached a client or an engine."""
    recovered_s: float | None
    """From the end of the cause until everything was as before."""
    figures: dict[str, Any] = field(default_factory=dict)
    bars: list[Bar] = field(default_factory=list)
    """The worst of the seeds is told."""
    typical: list[Bar] = field(default_factory=list)
    """The median of the seeds is told: of what chance moves both ways."""

    def whole(self, scenario: str, stage: Stage, seconds: float) -> dict[str, Any]:
        """The case as it is written."""
        records = stage.records()
        elsewhere = stage.failed_elsewhere()
        return {
            "case": {"scenario": scenario, "seconds": round(seconds, 1), "requests_per_s": stage.setup.rate},
            "detected_s": self.detected_s,
            "acted_s": self.acted_s,
            "recovered_s": self.recovered_s,
            "requests": len(records),
            "requests_failed": sum(record.failed for record in records),
            "requests_failed_elsewhere": len(elsewhere),
            "requests_refused": sum(record.refused for record in records),
            "flaps": stage.observer.flaps(),
            **self.figures,
            "failed_examples": [_told(record) for record in elsewhere[:5]],
        }


def after(at: float | None, since: float | None) -> float | None:
    """Seconds between two moments, where both were seen."""
    return None if at is None or since is None else round(at - since, 3)


def common_bars(scenario: str, case: dict[str, Any]) -> list[Bar]:
    """What must hold in every scenario."""
    return [
        Bar(
            f"{scenario}: failed though no failing engine had them",
            case["requests_failed_elsewhere"],
            "==",
            0,
        ),
        Bar(f"{scenario}: flaps", case["flaps"], "==", 0),
    ]


def quantile(values: Sequence[float], share: float) -> float | None:
    """A quantile by the nearest rank; None of nothing."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else None


def _told(record: Any) -> dict[str, Any]:
    return {"id": record.id, "status": record.status, "code": record.code, "backend": record.backend}
