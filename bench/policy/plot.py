"""The pictures: latency CDF, goodput against rate, memory over time, share per server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from bench.policy import runs, scenarios
from bench.policy.runs import Run
from bench.policy.server import Server

CELL: Final = "conv-tight-preempt"
MEMORY_CELL: Final = "mix-mixed-fleet"
SHOWN: Final = {
    "round_robin": "#9aa0a6",
    "least_outstanding": "#e07b39",
    "dynamo": "#7b5ea7",
    "predictive": "#1f4e79",
    "clairvoyant": "#2e8b57",
}
COLOURS: Final = {
    **SHOWN,
    "least_conn": "#d4b106",
    "hybrid": "#3aa6b9",
    "kubernetes_random": "#c0392b",
    "clairvoyant least work": "#a5c882",
}
DASHED: Final = "hybrid"
"""It goes where `least_conn` goes as long as nobody waits: both lines are to be seen."""
REQUESTS: Final = 2500


def plot(folder: Path, cases: Sequence[dict[str, Any]]) -> None:
    """Write `policy-latency.png`, `policy-goodput.png` and `policy-servers.png`."""
    _latency(folder / "policy-latency.png")
    _goodput(folder / "policy-goodput.png", cases)
    _servers(folder / "policy-servers.png")


def _latency(path: Path) -> None:
    known = scenarios.load()
    cell = known.cells[CELL]
    figure, axis = plt.subplots(figsize=(7, 4.2))
    for policy, colour in SHOWN.items():
        latencies = sorted(
            (job.finished - job.arrival) / 1000
            for job in runs.jobs_of(Run(CELL, policy, known.seeds[0], count=REQUESTS))
            if not job.failure
        )
        shares = [(k + 1) / REQUESTS for k in range(len(latencies))]
        axis.plot(latencies, shares, label=policy, color=colour)
    axis.set_xscale("log")
    axis.set_xlabel("seconds from arrival to last token")
    axis.set_ylabel("share of all requests")
    axis.set_title(f"{CELL}, {cell.rate:g} requests/s", fontsize=9)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    _save(figure, path)


def _goodput(path: Path, cases: Sequence[dict[str, Any]]) -> None:
    """Requests that met their objectives against what was asked, from the article's open loop."""
    curves = [case for case in cases if case["case"].get("loop") == "open"]
    capacities = sorted({case["case"]["capacity"] for case in curves})
    if not capacities:
        return
    figure, axes = plt.subplots(1, len(capacities), figsize=(5 * len(capacities), 4), squeeze=False)
    for axis, capacity in zip(axes[0], capacities, strict=True):
        of = [case for case in curves if case["case"]["capacity"] == capacity]
        for case in of:
            points = case["curve"]
            axis.plot(
                [point["rate"] for point in points],
                [point["goodput"] for point in points],
                marker="o",
                markersize=3,
                label=case["case"]["policy"],
                color=COLOURS.get(case["case"]["policy"]),
                linestyle="--" if case["case"]["policy"] == DASHED else "-",
            )
        rates = [point["rate"] for case in of for point in case["curve"]]
        axis.plot([min(rates), max(rates)], [min(rates), max(rates)], color="black", linewidth=0.5)
        axis.set_title(f"{capacity:,} KV tokens, engines that die when full", fontsize=9)
        axis.set_xlabel("requests/s asked")
        axis.set_ylabel("requests/s within their objectives")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    _save(figure, path)


def _memory(seen: list[tuple[float, list[float]]]) -> runs.Watch:
    def watch(now: float, servers: Sequence[Server]) -> None:
        seen.append((now / 1000, [server.engine.memory.usage for server in servers]))

    return watch


def _servers(path: Path) -> None:
    """Memory over time of each server, and the share of the work that it got."""
    known = scenarios.load()
    policies = ("least_outstanding", "predictive")
    figure, axes = plt.subplots(2, len(policies), figsize=(10, 6), squeeze=False, sharey="row")
    for column, policy in enumerate(policies):
        seen: list[tuple[float, list[float]]] = []
        jobs = runs.jobs_of(Run(MEMORY_CELL, policy, known.seeds[0], count=REQUESTS), watch=_memory(seen))
        specs = known.specs(known.cells[MEMORY_CELL])
        names = [f"{i + 1} {spec.gpu}" for i, spec in enumerate(specs)]
        for i, name in enumerate(names):
            axes[0][column].plot(
                [at for at, _ in seen], [row[i] for _, row in seen], label=name, linewidth=0.8
            )
        axes[0][column].set_title(policy, fontsize=9)
        axes[0][column].set_ylabel("KV memory in use")
        axes[0][column].set_xlabel("seconds")
        work = [0] * len(specs)
        for job in jobs:
            if job.server >= 0:
                work[job.server] += job.prompt + job.output
        axes[1][column].bar(names, [part / sum(work) for part in work], color="#1f4e79")
        axes[1][column].tick_params(axis="x", rotation=60, labelsize=7)
        axes[1][column].set_ylabel("share of all tokens")
    axes[0][0].legend(fontsize=6)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
