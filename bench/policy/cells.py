"""The parts of the bench that `scenarios.yaml` names: every policy in a cell, and what is measured besides in
the mixed fleet and the common case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.policy import idle, scenarios
from bench.policy.figures import combine
from bench.policy.policies import ALL, CHATS, OWN, OWN_BASELINES, PREDICTIONS_ARE_TRUE, RAMPLESS
from bench.policy.record import Case
from bench.policy.runs import Run
from bench.policy.scenarios import Scenarios
from bench.policy.sustained import Series, highest

MIXED: Final = "mix-mixed-fleet"
MIXED_RATES: Final = (14, 18, 22, 26, 30, 34, 38)
SHARE_OF_SUSTAINED: Final = 0.8
AT_SHARE: Final = "at 80 % of what predictive sustains"
COMMON: Final = "conv-64"
STEPS: Final = "coarse steps against exact"
IDLE: Final = "each request alone on an idle fleet"
COLD: Final = "conv-cold-burst"
WITHOUT_RAMP: Final = "the late server at once in full"


@dataclass(frozen=True)
class Part:
    """What is run and written at one go. `name`: as people ask for it; `marks`: what the record says of its
    last case when it was run with this size."""

    name: str
    marks: Mapping[str, Any]
    run: Callable[[], list[Case]]


def _size(known: Scenarios, cell: str, series: Series) -> dict[str, Any]:
    return {
        "requests": series.count or known.cells[cell].requests or known.requests,
        "seeds": list(series.seeds),
    }


def parts(
    known: Scenarios, names: Sequence[str], policies: Sequence[str], series: Series, quick: bool
) -> list[Part]:
    """The parts of these cells."""
    found = []
    for name in names:
        size = _size(known, name, series)
        rows = [policy for policy in policies if policy in (known.cells[name].policies or policies)]
        if not rows:
            continue
        found.append(
            Part(
                name,
                {"cell": name, "policy": rows[-1], **size},
                _every_policy(known, name, rows, series, size),
            )
        )
        if OWN not in rows:
            continue
        found.append(Part(name, {"cell": name, "part": IDLE, **size}, _idle_fleet(known, name, series, size)))
        if quick:
            continue
        if name == COLD:
            found.append(
                Part(name, {"cell": name, "part": WITHOUT_RAMP, **size}, _without_ramp(series, size))
            )
        if name == MIXED:
            found.append(Part(name, {"cell": name, "part": AT_SHARE, **size}, _at_share(series, size)))
        if name == COMMON:
            found.append(Part(name, {"cell": name, "part": STEPS, **size}, _coarse_steps(series, size)))
    return found


def _every_policy(
    known: Scenarios, name: str, policies: Sequence[str], series: Series, size: Mapping[str, Any]
) -> Callable[[], list[Case]]:
    def run() -> list[Case]:
        cell = known.cells[name]
        runs = [Run(name, policy, seed, count=series.count) for policy in policies for seed in series.seeds]
        return [
            {
                "case": {
                    "cell": name,
                    "policy": policy,
                    "kind": cell.kind.value,
                    "fleet": cell.fleet,
                    "capacity": cell.capacity,
                    "rate": cell.rate,
                    **size,
                },
                **figures,
            }
            for policy, figures in zip(policies, series.combined(runs), strict=True)
        ]

    return run


def _idle_fleet(
    known: Scenarios, name: str, series: Series, size: Mapping[str, Any]
) -> Callable[[], list[Case]]:
    """What no policy can better."""

    def run() -> list[Case]:
        cell = known.cells[name]
        found = [
            idle.figures(known.jobs(cell, seed, count=series.count)[0], known.specs(cell), cell.goals())
            for seed in series.seeds
        ]
        return [{"case": {"cell": name, "part": IDLE, **size}, **combine(found)}]

    return run


def _without_ramp(series: Series, size: Mapping[str, Any]) -> Callable[[], list[Case]]:
    """The policy where a server that comes late takes its share at once."""

    def run() -> list[Case]:
        runs = [Run(COLD, RAMPLESS.name, seed, count=series.count) for seed in series.seeds]
        (found,) = series.combined(runs)
        return [{"case": {"cell": COLD, "part": WITHOUT_RAMP, **size}, **found}]

    return run


def _at_share(series: Series, size: Mapping[str, Any]) -> Callable[[], list[Case]]:
    """What the mixed fleet sustains, and every policy's p99 at 80 % of that."""

    def run() -> list[Case]:
        most = highest(series.curve(MIXED, OWN, MIXED_RATES))
        rate = SHARE_OF_SUSTAINED * most
        at = {
            policy: series.curve(MIXED, policy, [rate])[rate]
            for policy in ALL
            if policy in (OWN, CHATS.name, *PREDICTIONS_ARE_TRUE, *OWN_BASELINES) or ALL[policy].rival
        }
        return [
            {
                "case": {"cell": MIXED, "part": AT_SHARE, "rate": rate, **size},
                "sustained_rate": most,
                "p99_s": {policy: figures["p99_s"] for policy, figures in at.items()},
                "good_share": {policy: figures["good_share"] for policy, figures in at.items()},
            }
        ]

    return run


def _coarse_steps(series: Series, size: Mapping[str, Any]) -> Callable[[], list[Case]]:
    """One common case with streams brought up to date at every decision, and in the steps of large fleets."""

    def run() -> list[Case]:
        runs = [
            Run(COMMON, OWN, seed, count=series.count, step_ms=step)
            for step in (0.0, scenarios.COARSE_MS)
            for seed in series.seeds
        ]
        exact, coarse = series.combined(runs)
        names = ("good_share", "p50_s", "p99_s", "ttft_p99_s", "memory_share", "per_minute")
        return [
            {
                "case": {"cell": COMMON, "part": STEPS, "step_ms": scenarios.COARSE_MS, **size},
                "exact": {name: exact[name] for name in names},
                "coarse": {name: coarse[name] for name in names},
            }
        ]

    return run
