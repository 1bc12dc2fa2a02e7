"""The gateways' leases, summed per backend. A lease that expired is gone, and its load with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sidecar.control.clashes import Clashes
from sidecar.control.model_load import Waiting
from tokenweir.contract.records import Lease, Priority, QueueState

MOST_GATEWAYS: Final = 256


def waiting(queue: QueueState) -> Waiting:
    """Who waits for a model in one gateway. A gateway of an older release does not tell classes apart."""
    oldest = dict(queue.oldest_by_priority)
    if queue.depth and not oldest:
        oldest[Priority.NORMAL] = queue.oldest_ms
    return Waiting(queue.depth, oldest)


@dataclass(slots=True)
class Gateways:
    """The last two looks at the leases."""

    leases: dict[str, Lease] = field(default_factory=dict)
    refused: int = 0
    """Leases that could not be believed, since the start."""
    clashes: Clashes = field(default_factory=Clashes)
    known: bool = False
    """Whether the leases could be read at all at the last look (Redis may be away)."""
    _requests: dict[str, float] = field(default_factory=dict)
    _held: dict[str, float] = field(default_factory=dict)
    _requests_before: dict[str, float] = field(default_factory=dict)
    _held_before: dict[str, float] = field(default_factory=dict)

    def update(self, texts: list[str | bytes]) -> None:
        """Take the texts of all living leases."""
        self.known = True
        leases: dict[str, Lease] = {}
        for text in texts[:MOST_GATEWAYS]:
            try:
                lease = Lease.read(text)
            except ValueError:
                self.refused += 1
            else:
                leases[lease.id] = lease
                self.clashes.observe(lease.id, lease.instance, lease.time_ms)
        self._requests_before, self._held_before = self._requests, self._held
        self.leases = leases
        self._requests, self._held = {}, {}
        for lease in leases.values():
            for backend_id, load in lease.backends.items():
                self._requests[backend_id] = self._requests.get(backend_id, 0) + load.n
                self._held[backend_id] = self._held.get(backend_id, 0) + load.held

    def lost(self) -> None:
        """The leases could not be read: what they said stays, and is no longer vouched for."""
        self.known = False

    def in_flight(self, backend_id: str) -> float:
        """Requests that the gateways have on a backend."""
        return self._requests.get(backend_id, 0)

    def leased(self, backend_id: str) -> tuple[float, float]:
        """(requests, tokens held), each the larger of the last two looks: a request must not count as foreign
        because its lease was read a moment before or after the engine's figures."""
        return (
            max(self._requests.get(backend_id, 0), self._requests_before.get(backend_id, 0)),
            max(self._held.get(backend_id, 0), self._held_before.get(backend_id, 0)),
        )

    def waiting(self, model: str) -> Waiting:
        """Who waits for a model, over all gateways."""
        depth, oldest = 0, dict[Priority, float]()
        for lease in self.leases.values():
            queue = lease.queue.get(model)
            if queue is not None:
                depth += queue.depth
                for priority, age in waiting(queue).oldest_ms.items():
                    oldest[priority] = max(oldest.get(priority, 0.0), age)
        return Waiting(depth, oldest)

    def ejected_everywhere(self, backend_id: str) -> bool:
        """Whether every gateway has taken the backend out; False where none reports."""
        return bool(self.leases) and all(backend_id in lease.ejected for lease in self.leases.values())

    def ejecting(self, backend_id: str) -> dict[str, str]:
        """Gateway -> why it has ejected the backend."""
        return {
            lease.id: lease.ejected[backend_id]
            for lease in self.leases.values()
            if backend_id in lease.ejected
        }

    def trying(self, backend_id: str) -> dict[str, str]:
        """Gateway -> why it had ejected the backend that it tries again with single requests."""
        return {
            lease.id: lease.tried[backend_id] for lease in self.leases.values() if backend_id in lease.tried
        }
