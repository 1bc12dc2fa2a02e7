"""The gateways' leases, summed per backend. A lease that expired is gone, and its load with it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sidecar.control.clashes import Clashes
from sidecar.control.model_load import Waiting
from tokenweir.contract import names
from tokenweir.contract.records import Priority

MOST_GATEWAYS: Final = 256


@dataclass(frozen=True, slots=True)
class GatewayLease:
    """What one gateway says of itself. Token and request figures are per backend id."""

    id: str
    instance: str
    time_ms: int
    sequence: int
    snapshot_sequence: int
    requests: Mapping[str, float]
    held: Mapping[str, float]
    ejected: Mapping[str, str]
    queue: Mapping[str, Waiting]
    """Model -> who waits for it there."""
    arrivals: Mapping[str, int]


class LeaseError(ValueError):
    """A lease that cannot be believed; the text says why."""


def read_lease(text: str | bytes) -> GatewayLease:
    """A lease's text as far as the sidecar needs it. Raises LeaseError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise LeaseError("not JSON") from None
    if not isinstance(document, dict) or document.get("schema") != names.SCHEMA:
        raise LeaseError(f"not a lease of schema {names.SCHEMA}")
    try:
        backends = _object(document.get("backends"))
        queue = _object(document.get("queue"))
        return GatewayLease(
            id=_text(document["id"]),
            instance=_text(document.get("instance", "")),
            time_ms=int(_number(document["time_ms"])),
            sequence=int(_number(document["sequence"])),
            snapshot_sequence=int(_number(document.get("snapshot_sequence", 0))),
            requests={key: _number(load.get("n", 0)) for key, load in backends.items()},
            held={key: _number(load.get("held", 0)) for key, load in backends.items()},
            ejected={key: _text(why) for key, why in _object(document.get("ejected")).items()},
            queue={model: _waiting(_object(state)) for model, state in queue.items()},
            arrivals={model: int(_number(n)) for model, n in _object(document.get("arrivals")).items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise LeaseError(f"{type(error).__name__}: {error}") from None


def _waiting(state: dict[str, Any]) -> Waiting:
    depth, oldest = int(_number(state.get("depth", 0))), _number(state.get("oldest_ms", 0))
    known = {priority.value: priority for priority in Priority}
    by_priority = _object(state.get("oldest_by_priority"))
    classes = {known[name]: _number(age) for name, age in by_priority.items() if name in known}
    if depth and not classes:
        # A gateway of an older release does not tell classes apart.
        classes = {Priority.NORMAL: oldest}
    return Waiting(depth, classes)


def _object(value: Any) -> dict[str, Any]:
    # An empty Lua table is written as an empty list.
    if value is None or value == []:
        return {}
    if not isinstance(value, dict):
        raise LeaseError("an object is wanted")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise LeaseError(f"a number from 0 is wanted, got {value!r}"[:120])
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 1024:
        raise LeaseError("a short text is wanted")
    return value


@dataclass(slots=True)
class Gateways:
    """The last two looks at the leases."""

    leases: dict[str, GatewayLease] = field(default_factory=dict)
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
        leases: dict[str, GatewayLease] = {}
        for text in texts[:MOST_GATEWAYS]:
            try:
                lease = read_lease(text)
            except LeaseError:
                self.refused += 1
            else:
                leases[lease.id] = lease
                self.clashes.observe(lease.id, lease.instance, lease.time_ms)
        self._requests_before, self._held_before = self._requests, self._held
        self.leases = leases
        self._requests, self._held = {}, {}
        for lease in leases.values():
            for backend_id, n in lease.requests.items():
                self._requests[backend_id] = self._requests.get(backend_id, 0) + n
            for backend_id, held in lease.held.items():
                self._held[backend_id] = self._held.get(backend_id, 0) + held

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
                for priority, age in queue.oldest_ms.items():
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
