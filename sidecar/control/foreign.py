"""Load that came to a backend past the gateways.

`running + waiting - leased`, in whole requests. Telemetry and leases are read at different moments, so under
traffic the difference jitters; the least of three readings counts, and an own request is never counted twice.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from sidecar.telemetry.readings import EngineReading
from tokenweir.contract.records import Foreign

READINGS: Final = 3
BELIEVED_MS: Final = 3000
"""Without a reading for this long, and for twice the last gap between two, nothing foreign is claimed."""

BELIEVED_MOST_MS: Final = 10_000


class ForeignLoad:
    """The foreign load of one backend. `observe` takes each telemetry reading with what was leased then."""

    def __init__(self) -> None:
        self._requests: deque[float] = deque(maxlen=READINGS)
        self._tokens: deque[float] = deque(maxlen=READINGS)
        self._at = float("-inf")
        self._gap = 0.0
        """Between the last two readings, ms."""

    def observe(
        self, reading: EngineReading, leased: float, leased_tokens: float, capacity: int | None
    ) -> None:
        """`leased` requests and `leased_tokens` held are the gateways' sums for this backend, the larger of
        their last two readings."""
        if reading.load is None:
            return
        self._gap = reading.at - self._at
        self._at = reading.at
        self._requests.append(max(0.0, reading.load - leased))
        if reading.kv_use is not None and capacity:
            self._tokens.append(max(0.0, reading.kv_use * capacity - leased_tokens))
        elif leased > 0:
            # Where the engine does not tell its KV use, a foreign request is taken to hold what an own one
            # does.
            self._tokens.append(self._requests[-1] * leased_tokens / leased)
        else:
            self._tokens.append(0.0)

    def now(self, now: float) -> tuple[Foreign, str | None]:
        """The load to publish, and the reason where there is any."""
        if len(self._requests) < READINGS or now - self._at > max(
            BELIEVED_MS, min(2 * self._gap, BELIEVED_MOST_MS)
        ):
            return Foreign(), None
        requests = int(min(self._requests))
        if requests == 0:
            return Foreign(), None
        tokens = int(min(self._tokens))
        seen = ", ".join(f"{value:g}" for value in self._requests)
        reason = f"foreign: {requests} requests, {tokens} tokens not of any gateway (least of {seen})"
        return Foreign(requests=requests, tokens=tokens), reason
