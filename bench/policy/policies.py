"""Every policy that the bench runs, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.policy import predictions
from bench.policy.clairvoyant import LeastWork
from bench.policy.job import Job, Prediction
from bench.policy.rivals import RIVALS
from bench.policy.routing import Router
from bench.policy.server import Server
from bench.policy.tokenweir_router import Tokenweir

Said = Callable[[Sequence[Job], int], list[Prediction]]

SURE: Final = {"z": 0.0, "common_deviation": 0.0}
"""Where lengths are known no margin is kept."""


@dataclass(frozen=True)
class Policy:
    """One row of the table. `said`: what is predicted; None: nothing is asked."""

    name: str
    router: Callable[[Sequence[Server], int], Router]
    said: Said | None = None
    rival: bool = False
    chats: bool = False
    """Whether a request of which the trace tells no session is the first of one of its own, as the gateway
    takes every chat."""

    def prepare(self, jobs: Sequence[Job], seed: int) -> None:
        """Give the requests their predictions."""
        if self.chats:
            for job in jobs:
                if job.session is None:
                    job.session = ("chat", seed, job.number)
        if self.said is not None:
            for job, prediction in zip(jobs, self.said(jobs, seed), strict=True):
                job.prediction = prediction


def _own(
    policy: str, *, judge: bool = True, ramp: bool = True, thresholds: dict[str, float] | None = None
) -> Callable[[Sequence[Server], int], Router]:
    return lambda servers, seed: Tokenweir(
        servers, seed, policy, judge=judge, ramp=ramp, thresholds=thresholds
    )


CHATS: Final = Policy("predictive, each a new chat", _own("predictive"), predictions.trained, chats=True)

OURS: Final = (
    Policy("predictive", _own("predictive"), predictions.trained),
    CHATS,
    Policy("predictive, running figures only", _own("predictive"), predictions.running),
    Policy("predictive, permuted predictions", _own("predictive"), predictions.permuted),
    Policy("clairvoyant", _own("predictive", thresholds=SURE, judge=False), predictions.clairvoyant),
    Policy("clairvoyant least work", LeastWork),
    Policy("round_robin", _own("round_robin"), predictions.trained),
    Policy("least_conn", _own("least_conn"), predictions.trained),
    Policy("hybrid", _own("hybrid"), predictions.trained),
    Policy("least_inflight", _own("least_inflight"), predictions.trained),
)

OWN: Final = "predictive"
"""The row that is held against the others."""
PREDICTIONS_ARE_TRUE: Final = ("clairvoyant", "clairvoyant least work")
OWN_BASELINES: Final = ("round_robin", "least_conn", "hybrid")

ALL: Final = {
    policy.name: policy
    for policy in (*OURS, *(Policy(name, make, rival=True) for name, make in RIVALS.items()))
}
"""The rows of the tables."""
RAMPLESS: Final = Policy("predictive, without ramp", _own("predictive", ramp=False), predictions.trained)
"""What the ramp of a server that comes late costs."""
KNOWN: Final = {**ALL, RAMPLESS.name: RAMPLESS}
"""Everything that can be run."""
