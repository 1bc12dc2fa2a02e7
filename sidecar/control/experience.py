"""What clients met on a backend lately, from the completions: times to the first token and failures."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from tokenweir.contract.records import Completion, Outcome

WINDOW_MS: Final = 60_000
MOST: Final = 256
LEAST: Final = 5
"""Completions that a comparison needs on either side."""
FAILED: Final = frozenset({Outcome.UPSTREAM_ERROR, Outcome.UPSTREAM_BROKE, Outcome.TIMEOUT})


@dataclass(frozen=True, slots=True)
class Met:
    """One completion. Monotonic ms."""

    at: float
    ttft_ms: float | None
    """First token after the backend was chosen: the wait for a place is not the backend's."""
    failed: bool


class Experience:
    """The last minute of one backend."""

    def __init__(self) -> None:
        self._met: deque[Met] = deque(maxlen=MOST)
        self._since = float("-inf")

    def begin(self, since: float) -> None:
        """Another engine is there since monotonic `since`: what was met before, or is told later of the time
        before, says nothing of it."""
        self._since = max(since, self._since)
        while self._met and self._met[0].at < self._since:
            self._met.popleft()

    def add(self, record: Completion, at: float) -> None:
        """A request ended at monotonic `at`."""
        if at < self._since:
            return
        ttft = None
        if record.ttft_ms is not None and record.stream and record.outcome is Outcome.OK:
            ttft = max(record.ttft_ms - record.wait_ms, 0.0)
        self._met.append(Met(at, ttft, record.outcome in FAILED))

    def ttfts(self, now: float) -> list[float]:
        """Times to the first token within the window, ms."""
        return [one.ttft_ms for one in self._met if now - one.at < WINDOW_MS and one.ttft_ms is not None]

    def failures(self, now: float) -> tuple[int, int]:
        """(failed requests, all requests) within the window."""
        recent = [one for one in self._met if now - one.at < WINDOW_MS]
        return sum(one.failed for one in recent), len(recent)


def worse_than_peers(
    own: Experience, peers: Iterable[Experience], now: float, ttft_factor: float, more_errors: float
) -> str | None:
    """Why a backend does worse than its peers, in words; None while it does not, or too little is known."""
    others = list(peers)
    failed, count = own.failures(now)
    of_peers = [peer.failures(now) for peer in others]
    peers_failed, peers_count = sum(pair[0] for pair in of_peers), sum(pair[1] for pair in of_peers)
    usual = peers_failed / peers_count if peers_count >= LEAST else 0.0
    if count >= LEAST and failed / count > usual + more_errors:
        return f"{failed} of its last {count} requests failed, {usual:.0%} of its peers'"
    times = own.ttfts(now)
    of_others = [time for peer in others for time in peer.ttfts(now)]
    if len(times) >= LEAST and len(of_others) >= LEAST:
        mine, theirs = median(times), median(of_others)
        if mine > ttft_factor * theirs:
            return f"its time to first token is {mine:.0f} ms, its peers' {theirs:.0f} ms"
    return None
