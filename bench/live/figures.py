"""What the clients saw, and what the simulator said they would."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from bench.live.loadgen import Answer
from bench.policy.figures import percentile


def of_answers(answers: Sequence[Answer], asked: int, speed: float) -> dict[str, Any]:
    """Figures in the engines' own seconds: they run `speed` times as fast as the clock. A request without an
    answer never ends."""
    good = [answer for answer in answers if not answer.error]
    missing = asked - len(good)
    latencies = [answer.latency * speed for answer in good] + [inf] * missing
    first = [answer.ttft * speed for answer in good] + [inf] * missing
    met = sum(
        answer.ttft * speed <= 1 + answer.prompt / 4000
        and (answer.latency - answer.ttft) * speed <= 0.08 * max(answer.output - 1, 1)
        for answer in good
    )
    return {
        "asked": asked,
        "failed": missing,
        "failed_for_memory": sum("memory" in answer.error.lower() for answer in answers if answer.error),
        "good_share": met / asked,
        "p50_s": percentile(latencies, 0.5),
        "p99_s": percentile(latencies, 0.99),
        "ttft_p50_s": percentile(first, 0.5),
        "ttft_p99_s": percentile(first, 0.99),
        "output_tokens": sum(answer.output for answer in good),
    }
