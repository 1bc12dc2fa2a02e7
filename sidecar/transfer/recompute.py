"""`none`: no cache is moved, prompts are computed anew. The gateway does not ask where this is configured."""

from __future__ import annotations

from sidecar.transfer.port import Move, Moved, TransferError


class Recompute:
    """Moves nothing."""

    async def move(self, move: Move) -> Moved:
        """Raises TransferError."""
        raise TransferError(
            f"caches are not moved (sessions.transfer.adapter: none), nor that of {move.source.id}"
        )
