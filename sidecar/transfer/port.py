"""The port: what is to be moved, and what an adapter makes of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from sidecar.telemetry.http import Origin
from tokenweir.config.transfer import BackendTransferConfig


class TransferError(Exception):
    """A cache was not moved; the text says why. The gateway lets the prompt be computed anew."""


@dataclass(frozen=True, slots=True)
class End:
    """A backend that gives a cache or takes it."""

    id: str
    origin: Origin
    config: BackendTransferConfig


@dataclass(frozen=True, slots=True)
class Move:
    """The cache of a request's prompt is to be moved before the request comes to `target`."""

    source: End
    target: End
    kind: str
    """`chat` or `completions`."""
    model: str
    """The engines' name of it."""
    tokens: int
    """Of the prompt that are thought to be cached at `source`."""
    ms: float
    """How long the request waits for it."""
    body: bytes
    """The request's body as the client sent it."""

    def request(self) -> dict[str, Any]:
        """The body as the engines are to see it. Raises TransferError."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise TransferError(f"the request cannot be read: {error}") from None
        if not isinstance(found, dict):
            raise TransferError("the request is no JSON object")
        return found | {"model": self.model}


@dataclass(frozen=True, slots=True)
class Moved:
    """A cache was moved."""

    tokens: int
    bytes: int = 0
    """0: the adapter is not told."""
    parameters: str = ""
    """`kv_transfer_params` for the request, JSON; empty: none are needed."""


class Adapter(Protocol):
    """A way to move caches."""

    async def move(self, move: Move) -> Moved:
        """Move a cache; it is cancelled when nobody waits any more. Raises TransferError."""
