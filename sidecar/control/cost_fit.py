"""Fits what work costs on one backend to what its engine's own counters say, look by look.

Between two looks the engine tells the mean time of a step (the mean time between tokens), how many sequences
and KV tokens a step held and how many prompt tokens it computed besides. A step takes

    base + per_sequence * sequences + per_kv_token * KV tokens + prefill * prompt tokens

so each pair of looks is one linear observation of the four coefficients. They are estimated by a Kalman
filter (R. E. Kalman, A New Approach to Linear Filtering and Prediction Problems, 1960) in factors of the
table's values, with two kinds of uncertainty: one that all coefficients share (a GPU that throttles or
shares its host is slower in everything) and a smaller one of each. So the common speed is known after a few
looks, and what loads alike cannot tell apart stays as the table has it. Forgetting is the uncertainty's
growth with time. Single wild observations are weighed down (Huber); where they go on, the speed has changed,
and the common uncertainty is opened again.

Of an engine that was slow when it was last seen at work and has had no work since (it looks too slow to be
chosen) nothing more would ever be learned. So what is published of it returns to its usual speed: it is
tried again, and the first look at it then says what holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tokenweir.contract.records import Cost

NAMES: Final = ("prefill", "base", "per_sequence", "per_kv_token")
SIZE: Final = 4

COMMON_SD: Final = 0.7
"""Deviation of the speed from the table's, before anything is seen."""
OWN_SD: Final = 0.4
"""Of each coefficient besides."""
COMMON_DRIFT: Final = 0.02
"""Growth of the common deviation in a second (as a root of time)."""
OWN_DRIFT: Final = 0.004
WILD: Final = 3.0
"""Deviations beyond which an observation is weighed down."""
WILD_IN_A_ROW: Final = 4
"""So many show that the speed has changed."""
REOPENED_SD: Final = 0.5
LEAST_FACTOR, MOST_FACTOR = 0.02, 100.0
"""Bounds of each factor: no engine is faster or slower than its table by more, a reading that says so is
wrong."""
LEAST_PREFILL: Final = 0.5
"""Of what the table says of prompts beside decode steps. Steps in which nobody decodes show in no gap
between tokens, but their prompts are counted: an engine that reads long prompts while it is nearly empty
would seem to read them in no time, and sessions would leave their caches for it."""
MOSTLY: Final = 0.5
"""Of a step without sequences, what a prompt must take to be read from the time to its first token."""
MOST_GAP_S: Final = 30.0
BELIEVED_MS: Final = 30_000.0
"""For so long a slow engine without work is taken to be as slow as it was ..."""
RETURN_MS: Final = 60_000.0
"""... and then returns to its usual speed: the distance falls to 1/e in this time."""
USUAL_MS: Final = 1_800_000.0
"""The usual speed is a mean in which a look counts 1/e after so much time at work."""


@dataclass(frozen=True, slots=True)
class Step:
    """The mean step between two looks."""

    ms: float
    sequences: float
    kv_tokens: float
    prompt_tokens: float
    noise: float
    """Relative deviation of `ms` that is to be expected of the source."""


class CostFit:
    """The fit of one backend, from a start."""

    def __init__(self, start: Cost) -> None:
        self.start = start
        self.observations = 0
        self._table = [start.prefill, start.base, start.per_sequence, start.per_kv_token]
        self._factor = [1.0] * SIZE
        self._deviation = [
            [COMMON_SD**2 + (OWN_SD**2 if row == column else 0.0) for column in range(SIZE)]
            for row in range(SIZE)
        ]
        self._wild = 0
        self._at: float | None = None
        self._usual = 0.0
        """ln of the factor that is usual."""

    def observe(self, step: Step, now: float) -> None:
        """Take the mean step of the time since the last look, at monotonic `now` in ms. Figures that cannot
        be are left out."""
        if not (math.isfinite(step.ms) and step.ms > 0 and step.sequences > 0):
            return
        amounts = (step.prompt_tokens, 1.0, step.sequences, step.kv_tokens)
        parts = [amount * value for amount, value in zip(amounts, self._table, strict=True)]
        whole = sum(parts)
        if not whole > 0:
            return
        worked = 0.0 if self._at is None else min(max(now - self._at, 0.0), MOST_GAP_S * 1000)
        self._drift(now)
        weights = [part / whole for part in parts]
        seen = step.ms / whole
        gain_base = [
            sum(self._deviation[row][column] * weights[column] for column in range(SIZE))
            for row in range(SIZE)
        ]
        expected = sum(factor * weight for factor, weight in zip(self._factor, weights, strict=True))
        noise = (step.noise * max(seen, expected)) ** 2
        spread = sum(weight * gain for weight, gain in zip(weights, gain_base, strict=True)) + noise
        error = seen - expected
        wild = error * error / spread > WILD * WILD
        self._wild = self._wild + 1 if wild else 0
        if wild and self._wild >= WILD_IN_A_ROW:
            self._reopen()
            self._wild = 0
            self.observe(step, now)
            return
        if wild:
            spread *= math.sqrt(error * error / spread) / WILD
        self._correct(gain_base, error, spread)
        self.observations += 1
        weight = 1 - math.exp(-worked / USUAL_MS)
        self._usual += weight * (math.log(self.factor()) - self._usual)

    def mostly_prompt(self, step: Step) -> bool:
        """Whether the prompt is a large part of what the step takes, by the table: of others the time to the
        first token tells little."""
        return step.prompt_tokens * self._table[0] >= MOSTLY * self._table[1]

    def cost(self, now: float | None = None) -> Cost:
        """The coefficients; at monotonic `now` in ms, with what time does to what is known."""
        scale = 1.0 if now is None else self.returned(now)
        prefill = max(self._value(0), LEAST_PREFILL * self._table[0] * self._factor[1])
        return Cost(
            prefill=min(max(scale * prefill, 1e-6), 1e4),
            base=min(max(scale * self._value(1), 1e-3), 1e5),
            per_sequence=min(max(scale * self._value(2), 0.0), 1e4),
            per_kv_token=min(max(scale * self._value(3), 0.0), 1e2),
        )

    def returned(self, now: float) -> float:
        """By what the cost is to be multiplied for the time without work: 1, or less for an engine that was
        slower than usual."""
        if self._at is None or now - self._at <= BELIEVED_MS:
            return 1.0
        slower = math.log(self.factor()) - self._usual
        if slower <= 0:
            return 1.0
        return math.exp(-slower * (1 - math.exp(-(now - self._at - BELIEVED_MS) / RETURN_MS)))

    def step_ms(self, sequences: float, kv_tokens: float, prompt_tokens: float = 0.0) -> float:
        """What a step takes by the coefficients."""
        cost = self.cost()
        return (
            cost.base
            + cost.per_sequence * sequences
            + cost.per_kv_token * kv_tokens
            + cost.prefill * prompt_tokens
        )

    def factor(self, sequences: float = 16.0, kv_tokens: float = 16_384.0) -> float:
        """How many times slower than the table it is at a usual load."""
        start = self.start
        return self.step_ms(sequences, kv_tokens) / (
            start.base + start.per_sequence * sequences + start.per_kv_token * kv_tokens
        )

    def uncertainty(self) -> dict[str, float]:
        """Relative deviation of each coefficient."""
        return {
            name: math.sqrt(max(self._deviation[at][at], 0.0)) / self._factor[at]
            for at, name in enumerate(NAMES)
        }

    def _value(self, at: int) -> float:
        return self._table[at] * self._factor[at]

    def _drift(self, now: float) -> None:
        """Let the uncertainty grow with the time since the last observation, up to what it was at first."""
        seconds = 0.0 if self._at is None else min(max(now - self._at, 0.0) / 1000, MOST_GAP_S)
        self._at = now
        common = COMMON_DRIFT**2 * seconds
        own = OWN_DRIFT**2 * seconds
        for row in range(SIZE):
            for column in range(SIZE):
                scale = self._factor[row] * self._factor[column]
                grown = common * scale + (own * scale if row == column else 0.0)
                most = (COMMON_SD**2 + (OWN_SD**2 if row == column else 0.0)) * scale
                if self._deviation[row][row] < most or row != column:
                    self._deviation[row][column] += grown

    def _reopen(self) -> None:
        """The speed has changed: the common factor is open again, what each coefficient adds to it is not."""
        for row in range(SIZE):
            for column in range(SIZE):
                self._deviation[row][column] += REOPENED_SD**2 * self._factor[row] * self._factor[column]

    def _correct(self, gain_base: list[float], error: float, spread: float) -> None:
        for row in range(SIZE):
            moved = self._factor[row] + gain_base[row] * error / spread
            self._factor[row] = min(max(moved, LEAST_FACTOR), MOST_FACTOR)
        for row in range(SIZE):
            for column in range(SIZE):
                self._deviation[row][column] -= gain_base[row] * gain_base[column] / spread
