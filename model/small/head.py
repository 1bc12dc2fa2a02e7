"""The head: a linear model of a text's encoding that corrects the median of the trees, in ln(1 + tokens).

It starts from the bundled weights, fitted to recorded prompts (`python -m model.small.fit`), and goes on by
what comes out: recursive least squares with weights that forget (Haykin, Adaptive Filter Theory, ch. 9)."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from model.small.encoder import SIZE, Array

BUNDLED: Final = Path(__file__).with_name("head.npz")
ALPHA: Final = 30.0
"""Ridge penalty of the bundled fit; as firmly the bundled weights are held to when learning goes on."""
MEMORY: Final = 0.9999
"""What the weight of a completion is multiplied by with each later one."""
MOST_RESIDUAL: Final = 1.5
"""A residual counts at most so much, so that a few odd outputs do not bend the weights."""
MOST_CORRECTION: Final = 0.7
MOST_VARIANCE: Final = 10.0


def _column(encoding: Array) -> npt.NDArray[np.float64]:
    return np.append(encoding.astype(np.float64), 1.0)


class Head:
    """The weights, and how sure of them it is."""

    def __init__(self, weights: npt.NDArray[np.float64]) -> None:
        self.weights = weights
        self.spread = np.eye(SIZE + 1) / ALPHA
        self.learned = 0

    @classmethod
    def bundled(cls) -> Head:
        """The head that comes with Tokenweir."""
        with np.load(BUNDLED) as found:
            return cls(found["weights"].astype(np.float64))

    @classmethod
    def load(cls, path: Path) -> Head:
        """A saved head; the bundled one where there is none or it is damaged."""
        try:
            with np.load(path) as found:
                head = cls(found["weights"].astype(np.float64))
                head.spread, head.learned = found["spread"].astype(np.float64), int(found["learned"])
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            return cls.bundled()
        if head.weights.shape != (SIZE + 1,) or head.spread.shape != (SIZE + 1, SIZE + 1):
            return cls.bundled()
        finite = np.isfinite(head.weights).all() and np.isfinite(head.spread).all()
        return head if finite else cls.bundled()

    def save(self, path: Path) -> None:
        """Write it; atomically. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".partial.npz")
        np.savez(
            temporary,
            allow_pickle=False,
            weights=self.weights,
            spread=self.spread.astype(np.float32),
            learned=self.learned,
        )
        temporary.replace(path)

    def correction(self, encoding: Array) -> float:
        """What is to be added to the median of ln(1 + tokens)."""
        found = float(self.weights @ _column(encoding))
        return min(max(found, -MOST_CORRECTION), MOST_CORRECTION)

    def learn(self, encoding: Array, residual: float) -> None:
        """Takes how far an output lay from the median, in ln(1 + tokens)."""
        residual = min(max(residual, -MOST_RESIDUAL), MOST_RESIDUAL)
        x = _column(encoding)
        along = self.spread @ x
        gain = along / (MEMORY + x @ along)
        self.weights = self.weights + gain * (residual - self.weights @ x)
        self.spread = (self.spread - np.outer(gain, along)) / MEMORY
        if self.spread.trace() > MOST_VARIANCE * (SIZE + 1):
            # Where all texts are alike nothing is learned of other directions, and forgetting blows them up.
            self.spread *= MOST_VARIANCE * (SIZE + 1) / self.spread.trace()
        self.learned += 1
