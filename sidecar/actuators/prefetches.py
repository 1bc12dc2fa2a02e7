"""The weights of the fleet: read ahead on this host, or by the agent on the backend's own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import aiohttp
import structlog

from sidecar import tasks
from sidecar.actuators.prefetch import Prefetch, Progress
from tokenweir.config import ConfigError
from tokenweir.config.actuators import WeightsConfig
from tokenweir.config.models import BackendConfig
from tokenweir.secret_file import read_secret

log = structlog.get_logger(__name__)

ASK_EVERY_S: Final = 1.0
TIMEOUT_S: Final = 10.0


class Prefetches:
    """By backend. A prefetch that runs is not begun twice; one that has ended stays until the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._wanted: dict[str, WeightsConfig] = {}
        self._local: dict[str, Prefetch] = {}
        self._remote: dict[str, Progress] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def set_backends(self, backends: Iterable[BackendConfig]) -> None:
        """Know exactly the weights of these backends."""
        self._wanted = {backend.id: backend.weights for backend in backends if backend.weights is not None}
        for known in (self._local, self._remote):
            for gone in set(known) - set(self._wanted):
                known.pop(gone)

    def begin(self, backend_id: str) -> bool:
        """Read the backend's weights ahead, unless that is under way; returns whether there are any to be
        read. Inside the event loop."""
        config = self._wanted.get(backend_id)
        if config is None:
            return False
        if backend_id not in self._tasks:
            if config.agent:
                self._remote[backend_id] = Progress(config.path, 0, 0, 0, 0.0, finished=False)
                work = self._ask(backend_id, config)
            else:
                prefetch = Prefetch(self._folder / config.path, config.readers)
                self._local[backend_id] = prefetch
                work = self._read(backend_id, prefetch)
            task = self._tasks[backend_id] = asyncio.create_task(work, name=f"prefetch {backend_id}")
            task.add_done_callback(lambda _: self._tasks.pop(backend_id, None))
        return True

    def progress(self) -> dict[str, Progress]:
        """By backend, of those begun."""
        return {name: one.progress() for name, one in self._local.items()} | self._remote

    async def close(self) -> None:
        """Stop what runs."""
        await tasks.cancel(list(self._tasks.values()))

    async def _read(self, backend_id: str, prefetch: Prefetch) -> None:
        _told(backend_id, await prefetch.run())

    async def _ask(self, backend_id: str, config: WeightsConfig) -> None:
        """Have the agent read, and follow how far it is."""
        url = f"{config.agent}/prefetch"
        asked = {"path": config.path, "readers": config.readers}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            headers = self._headers(backend_id, config)
            async with aiohttp.ClientSession(headers=headers, timeout=timeout, trust_env=False) as session:
                async with session.post(url, json=asked) as answer:
                    progress = await _progress(answer, config.path)
                while True:
                    self._remote[backend_id] = progress
                    if progress.finished:
                        break
                    await asyncio.sleep(ASK_EVERY_S)
                    async with session.get(url, params={"path": config.path}) as answer:
                        progress = await _progress(answer, config.path)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, ConfigError) as error:
            text = "; ".join(error.problems) if isinstance(error, ConfigError) else str(error)
            problem = f"the agent {config.agent}: {text or type(error).__name__}"
            progress = Progress(config.path, 0, 0, 0, 0.0, finished=True, problem=problem)
            self._remote[backend_id] = progress
        _told(backend_id, progress)

    def _headers(self, backend_id: str, config: WeightsConfig) -> dict[str, str]:
        if config.token_file is None:
            return {}
        key = f"backends: {backend_id}: weights: token_file"
        return {"Authorization": f"Bearer {read_secret(self._folder / config.token_file, key)}"}


async def _progress(answer: aiohttp.ClientResponse, path: str) -> Progress:
    """The agent's answer. Raises ValueError on one that is none."""
    try:
        body: Any = await answer.json()
    except (aiohttp.ContentTypeError, ValueError):
        body = {}
    if answer.status >= 400 or not isinstance(body, dict) or "done_bytes" not in body:
        message = body.get("error", "") if isinstance(body, dict) else ""
        raise ValueError(f"answers {answer.status}" + (f": {message}" if message else ""))
    return Progress(
        path=path,
        files=int(body["files"]),
        total_bytes=int(body["total_bytes"]),
        done_bytes=int(body["done_bytes"]),
        seconds=float(body["seconds"]),
        finished=bool(body["finished"]),
        problem=str(body.get("problem", ""))[:500],
    )


def _told(backend_id: str, progress: Progress) -> None:
    level = log.warning if progress.problem else log.info
    level(
        "weights_read",
        backend=backend_id,
        gigabytes=round(progress.done_bytes / 1e9, 2),
        seconds=round(progress.seconds, 1),
        problem=progress.problem or None,
    )
