"""Steady streamed traffic through the gateway, with what came of every request."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp

CHAT = {
    "model": "llama-3-8b",
    "stream": True,
    "max_tokens": 40,
    "messages": [{"role": "user", "content": "Tell me about rivers."}],
}


@dataclass
class Outcome:
    """One request: `failure` is None when the stream came whole, to its end."""

    started: float
    ended: float
    backend: str
    failure: str | None
    connected: bool


class Load:
    """`clients` clients that stream one answer after the other while the context is open."""

    def __init__(self, base_url: str, clients: int = 8) -> None:
        self._url = f"{base_url}/chat/completions"
        self._clients = clients
        self._stop = threading.Event()
        self.outcomes: list[Outcome] = []

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=60)

    @property
    def failed(self) -> list[Outcome]:
        """The requests that did not come whole."""
        return [outcome for outcome in self.outcomes if outcome.failure is not None]

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(self._client(session) for _ in range(self._clients)))

    async def _client(self, session: aiohttp.ClientSession) -> None:
        while not self._stop.is_set():
            outcome = await self._request(session)
            self.outcomes.append(outcome)
            if outcome.failure is not None:
                await asyncio.sleep(0.1)

    async def _request(self, session: aiohttp.ClientSession) -> Outcome:
        started, backend, failure, connected, finished = time.monotonic(), "", None, False, False
        try:
            async with session.post(self._url, json=CHAT) as answer:
                connected = True
                backend = answer.headers.get("X-Tokenweir-Backend", "")
                if answer.status != 200:
                    failure = f"{answer.status} {(await answer.text())[:300]}"
                async for line in answer.content:
                    text = line.decode().strip()
                    if text == "data: [DONE]":
                        finished = True
                    elif text.startswith("data: ") and "error" in json.loads(text[6:]):
                        failure = text
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            failure = f"{type(error).__name__}: {error}"
        if failure is None and not finished:
            failure = "the stream ended without [DONE]"
        return Outcome(started, time.monotonic(), backend, failure, connected)
