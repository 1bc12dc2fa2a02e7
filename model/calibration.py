"""The calibration plot: how often outputs stay below the quantiles that were predicted, and the largest
features."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from model.core import Floats

SHOWN: Final = 20


def plot(levels: Floats, reached: Floats, gains: dict[str, float], path: Path) -> None:
    """Draw `reached` (share of outputs below each predicted quantile) against `levels`, and the features by
    the share of what they gained, into a PNG."""
    from matplotlib import pyplot  # noqa: PLC0415  (slow to import, and only drawn with)

    pyplot.switch_backend("Agg")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 5))
    left.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    left.plot(levels, reached, marker="o")
    left.set_xlabel("predicted quantile")
    left.set_ylabel("share of outputs below it")
    left.set_title("Calibration on rows that the model did not see")
    found = sorted(gains.items(), key=lambda item: item[1])[-SHOWN:]
    right.barh(np.arange(len(found)), [gain for _, gain in found])
    right.set_yticks(np.arange(len(found)), [name for name, _ in found])
    right.set_title("Share of the gain")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
