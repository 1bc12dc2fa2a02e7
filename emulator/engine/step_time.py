"""The time of steps, one by one and many decoding steps at once."""

from math import sqrt

from tokenweir.facts import StepTime

TOLERANCE_MS = 1e-6
"""What the rounding of clocks of many days may take from a span."""


class Pace:
    """Step times of one engine in ms; `slowdown` stretches them (thermal throttling, a noisy neighbour, a
    fault)."""

    def __init__(self, time: StepTime, slowdown: float = 1.0) -> None:
        self.time = time
        self.slowdown = slowdown
        self._matrices: dict[int, float] = {}

    def matrices(self, tokens: int) -> float:
        """Cached `StepTime.matrices`."""
        found = self._matrices.get(tokens)
        if found is None:
            found = self._matrices[tokens] = self.time.matrices(tokens)
        return found

    def step(self, tokens: int, sequences: int, kv_tokens: int, attention: float) -> float:
        """One step; `attention` is the sum over prompt chunks of tokens x context that they attend to."""
        time = self.time
        return self.slowdown * (
            self.matrices(tokens)
            + time.scheduler
            + time.per_sequence * sequences
            + time.per_kv_token * kv_tokens
            + time.attention * attention
        )

    def decoding(self, count: int, sequences: int, kv_tokens: int) -> float:
        """`count` steps in which `sequences` sequences, holding `kv_tokens` before the first of them, each
        decode one token: the KV read grows by `sequences` a step, so this is the sum of an arithmetic
        series."""
        time = self.time
        once = self.matrices(sequences) + time.scheduler + time.per_sequence * sequences
        read = time.per_kv_token * (kv_tokens * count + sequences * count * (count + 1) / 2)
        return self.slowdown * (once * count + read)

    def decoding_steps(self, span: float, sequences: int, kv_tokens: int, most: int) -> int:
        """How many such steps, at most `most`, end within `span` ms."""
        if self.decoding(most, sequences, kv_tokens) <= span + TOLERANCE_MS:
            return most
        time = self.time
        quadratic = self.slowdown * time.per_kv_token * sequences / 2
        linear = self.decoding(1, sequences, kv_tokens) - quadratic
        count = (
            int((sqrt(linear * linear + 4 * quadratic * span) - linear) / (2 * quadratic))
            if quadratic
            else int(span / linear)
        )
        # The square root may be off by one either way.
        while count > 0 and self.decoding(count, sequences, kv_tokens) > span + TOLERANCE_MS:
            count -= 1
        while count < most and self.decoding(count + 1, sequences, kv_tokens) <= span + TOLERANCE_MS:
            count += 1
        return min(count, most)
