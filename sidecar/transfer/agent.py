"""`agent`: the engines' own agents send the cache to each other (`kv_agent/`); the new one fetches it."""

from __future__ import annotations

from sidecar.transfer.calls import Calls
from sidecar.transfer.port import End, Move, Moved, TransferError


class KvAgents:
    """Agents that know one token."""

    def __init__(self, calls: Calls, token: str | None) -> None:
        self._calls, self._token = calls, token

    async def move(self, move: Move) -> Moved:
        """Have the agent of the new backend fetch what that of the old one has. Raises TransferError."""
        answer = await self._calls.service(
            _agent(move.target),
            "/kv/fetch",
            {
                "source": _agent(move.source),
                "kind": move.kind,
                "request": move.request(),
                "timeout_ms": move.ms,
            },
            self._token,
        )
        tokens, size = answer.get("tokens"), answer.get("bytes")
        if not isinstance(tokens, int) or not isinstance(size, int) or tokens <= 0:
            raise TransferError(f"{move.source.id} has nothing of the prompt")
        return Moved(tokens, size)


def _agent(end: End) -> str:
    if end.config.kv_agent is None:
        raise TransferError(f"backend {end.id} has no `transfer: {{kv_agent: ...}}`")
    return end.config.kv_agent
