"""vLLM's parameters of disaggregated serving, between emulated servers that keep tensors (`--kv-bytes`).

A request with `do_remote_decode` is answered with where its cache is; one with `do_remote_prefill` fetches it
from there before it is computed. What cannot be fetched is computed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from kv_agent.agent import Agent, AgentError

MEMBER: Final = "kv_transfer_params"
PATIENCE_MS: Final = 10_000


class Handover:
    """One server's part; `host` and `port` are its agent's."""

    def __init__(self, agent: Agent, host: str, port: int) -> None:
        self._agent, self._host, self.port = agent, host, port

    async def take(self, kind: str, body: Mapping[str, Any]) -> None:
        """Fetch the cache of a request that says where it is."""
        told = body.get(MEMBER)
        if not isinstance(told, dict) or not told.get("do_remote_prefill"):
            return
        source = f"http://{told.get('remote_host')}:{told.get('remote_port')}"
        with contextlib.suppress(AgentError):
            await self._agent.fetch(source, kind, body, PATIENCE_MS)

    def offer(self, body: Mapping[str, Any], sent: web.StreamResponse) -> web.StreamResponse:
        """The answer to a request, with where its cache is, if it asks for that."""
        told = body.get(MEMBER)
        if not isinstance(told, dict) or not told.get("do_remote_decode"):
            return sent
        if not isinstance(sent, web.Response) or sent.status != 200 or not isinstance(sent.body, bytes):
            return sent
        handle = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": f"{self._host}:{self.port}",
            "remote_block_ids": [],
            "remote_host": self._host,
            "remote_port": self.port,
        }
        sent.body = json.dumps({**json.loads(sent.body), MEMBER: handle}).encode()
        return sent
