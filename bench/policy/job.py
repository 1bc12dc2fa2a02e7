"""One request on its way through a simulation."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import nan

from emulator.engine import Request


class Prediction:
    """What is said beforehand of a request's output, in tokens; a negative mean: nothing, the running figures
    serve."""

    __slots__ = ("mean", "median", "q90", "sd")

    def __init__(self, mean: float = -1, median: float = -1, q90: float = -1, sd: float = -1) -> None:
        self.mean, self.median, self.q90, self.sd = mean, median, q90, sd


NOTHING = Prediction()


class Job:
    """A request of the trace and what became of it. Times are ms, `nan` until it happened."""

    __slots__ = (
        "arrival",
        "failure",
        "finished",
        "first_token",
        "hashes",
        "key",
        "number",
        "output",
        "prediction",
        "prompt",
        "request",
        "sent",
        "server",
        "session",
    )

    def __init__(
        self,
        number: int,
        arrival: float,
        prompt: int,
        output: int,
        *,
        session: Hashable = None,
        key: str = "",
        hashes: Sequence[Hashable] = (),
    ) -> None:
        self.number, self.arrival, self.prompt, self.output = number, arrival, prompt, output
        self.session, self.key, self.hashes = session, key, hashes
        self.prediction = NOTHING
        self.request: Request | None = None
        self.server = -1
        self.sent = self.first_token = self.finished = nan
        self.failure = ""
        """Why it came to nothing: "memory" (the engine ran out of it), "gone" (no server could be reached),
        "waited" (the wait for a place was over its limit); empty while it is well."""
