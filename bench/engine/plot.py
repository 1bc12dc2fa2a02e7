"""The run's and the replay's curves, one above the other."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from bench.engine.figures import CURVES
from bench.engine.recording import Recording
from bench.engine.replay import Replay

LABELS = {"running": "requests running", "waiting": "requests waiting", "kv": "KV memory in use"}


def plot(recording: Recording, replayed: Replay, path: Path) -> None:
    """Write a PNG of running, waiting and KV use over time."""
    figure, axes = plt.subplots(len(CURVES), 1, figsize=(8, 7), sharex=True)
    for axis, (name, value) in zip(axes, CURVES.items(), strict=True):
        for curve, label, style in (
            (recording.curve, "vLLM 0.19 on an RTX 4090", {"color": "#1f4e79", "linewidth": 1.6}),
            (replayed.curve, "emulated", {"color": "#e07b39", "linewidth": 1.2, "linestyle": "--"}),
        ):
            axis.plot(
                [second.time for second in curve], [value(second) for second in curve], label=label, **style
            )
        axis.set_ylabel(LABELS[name])
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend(loc="lower center")
    axes[-1].set_xlabel("seconds")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
