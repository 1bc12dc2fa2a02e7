"""What the simulator says of what the emulated engines were asked: the same requests at the same moments, on
the same servers, with what Tokenweir was told of them.

It plays by the wall's clock, as the real run does. Engines run slower there than the tables of facts say,
which the fit of costs has to find out, and telemetry comes every half second all the same."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from bench.live.loadgen import Answer
from bench.policy.figures import Objectives
from bench.policy.replay import Replay
from bench.policy.server import ServerSpec
from bench.policy.traces import Asked

POLICY: Final = "predictive, running figures only"
"""No predictor is trained for the real run."""
SEEDS: Final = range(1, 11)
"""Which places the sessions have on the ring is chance; one run is one draw of it."""
TIMES: Final = ("p50_s", "p99_s", "ttft_p50_s", "ttft_p99_s")


def served(answers: Sequence[Answer]) -> list[Asked]:
    """What the engines were asked and answered, when it came and how many tokens they counted. Each request
    is a session of its own: the gateway tells chats apart by how they open."""
    good = sorted((answer for answer in answers if not answer.error), key=lambda answer: answer.at)
    return [
        Asked(answer.at, answer.prompt, answer.output, session=number) for number, answer in enumerate(good)
    ]


def predicted(
    answers: Sequence[Answer], specs: Sequence[ServerSpec], speed: float, seeds: Sequence[int] = SEEDS
) -> dict[str, Any] | None:
    """The mean of the seeds, in the engines' own seconds: they run `speed` times as fast as the clock. None
    where there is too little to be played."""
    asked = served(answers)
    if len(asked) < 2:
        return None
    usual = Objectives()
    goals = Objectives(usual.ttft_ms / speed, usual.prefill_tokens_per_s * speed, usual.tpot_ms / speed)
    slow = [spec.but(slowdown=spec.slowdown / speed) for spec in specs]
    runs = [
        Replay([_of_seed(request, seed) for request in asked], slow, None, seed, goals).run(POLICY)
        for seed in seeds
    ]
    found: dict[str, Any] = {name: fmean(run[name] for run in runs) * speed for name in TIMES}
    found["good_share"] = fmean(run["good_share"] for run in runs)
    found["failed"] = len(asked) * (1 - fmean(run["success"] for run in runs))
    found["p99_s_seeds"] = [run["p99_s"] * speed for run in runs]
    return found


def _of_seed(request: Asked, seed: int) -> Asked:
    """The same request with another place on the ring."""
    return Asked(request.at, request.prompt, request.output, session=hash((seed, request.session)))
