"""Clients of the control bench: an open loop of streamed chats, with sessions and priorities."""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from bench.control.fleet import MODEL

TIMEOUT_S = 60
KNOWN_SHARE = 0.6
"""Of the requests that go on with a session which was served before."""
SESSIONS_KEPT = 200
PRIORITIES = ("low", "normal", "normal", "high")
REFUSALS = frozenset({429, 503})
_WORDS = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett"]


@dataclass(slots=True)
class Record:
    """One request and what became of it. Times are CLOCK_MONOTONIC in s."""

    id: str
    sent: float
    known: bool
    """Whether its session had been served before."""
    priority: str
    max_tokens: int
    status: int = 0
    code: str = ""
    """Of the error, where there is one."""
    backend: str = ""
    degraded: str = ""
    first: float | None = None
    ended: float = 0.0
    tokens: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the whole answer came."""
        return self.status == 200 and not self.code

    @property
    def refused(self) -> bool:
        """Whether it was turned away before any engine had it."""
        return self.status in REFUSALS and not self.ok

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than by an answer or a refusal."""
        return self.ended > 0 and not self.ok and not self.refused


@dataclass
class Traffic:
    """Requests at `rate` a second until `stop`. The rate may be changed while it runs."""

    port: int
    rate: float
    seed: int
    prompt_words: int = 60
    output: tuple[int, int] = (10, 40)
    """Least and most of `max_tokens`."""
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._source = random.Random(self.seed)
        self._sessions: list[str] = []
        self._stopped = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._main: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin."""
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        )
        self._main = asyncio.create_task(self._run())

    async def stop(self, patience_s: float = TIMEOUT_S) -> None:
        """Send no more; wait for what is under way, at most so long."""
        self._stopped = True
        if self._main is not None:
            await self._main
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience_s)
        for task in self._tasks:
            task.cancel()
        await self._http.close()

    async def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped:
            # Even with some jitter: what is measured are reactions, not the luck of arrivals.
            due += self._source.uniform(0.5, 1.5) / self.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(self._send())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _request(self) -> tuple[Record, dict[str, Any], str]:
        source, number = self._source, len(self.records)
        known = bool(self._sessions) and source.random() < KNOWN_SHARE
        session = source.choice(self._sessions) if known else f"session-{self.seed}-{number}"
        record = Record(
            id=f"control-{self.seed}-{number:06d}",
            sent=time.monotonic(),
            known=known,
            priority=source.choice(PRIORITIES),
            max_tokens=source.randint(*self.output),
        )
        self.records.append(record)
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": " ".join(source.choices(_WORDS, k=self.prompt_words))}],
            "max_tokens": record.max_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return record, body, session

    async def _send(self) -> None:
        record, body, session = self._request()
        headers = {"X-Request-Id": record.id, "X-Session-ID": session, "X-Priority": record.priority}
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        try:
            async with self._http.post(url, json=body, headers=headers) as answer:
                record.status = answer.status
                record.backend = answer.headers.get("X-Tokenweir-Backend", "")
                record.degraded = answer.headers.get("X-Tokenweir-Degraded", "")
                if answer.status == 200:
                    await self._stream(answer, record)
                else:
                    record.code = _code(await answer.read()) or str(answer.status)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            record.code = type(error).__name__
        finally:
            record.ended = time.monotonic()
        if record.ok and not record.known:
            self._sessions.append(session)
            del self._sessions[:-SESSIONS_KEPT]

    async def _stream(self, answer: aiohttp.ClientResponse, record: Record) -> None:
        done = False
        async for line in answer.content:
            if not line.startswith(b"data: "):
                continue
            if record.first is None:
                record.first = time.monotonic()
            if line.startswith(b"data: [DONE]"):
                done = True
            elif b'"error"' in line:
                record.code = _code(line[6:]) or "stream_error"
            elif b'"usage"' in line:
                usage = json.loads(line[6:]).get("usage") or {}
                record.tokens = usage.get("completion_tokens", record.tokens)
        if not done and not record.code:
            record.code = "cut_off"


def _code(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""
