"""One real engine is killed and one frozen under load: the clients hardly notice."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
import pytest

from tests.integration.engines.conftest import MODEL, LlamaEngine, Tokenweir
from tests.integration.servers import PATIENCE, wait_until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

SILENCE = 15
"""Seconds after which a client gives a silent stream up."""
ENOUGH = 60
"""Seconds for a few answers, on a machine that has other work too."""


@dataclass
class Load:
    """Clients that chat one after the other until told to stop."""

    tokenweir: Tokenweir
    clients: int = 4
    answers: list[tuple[float, float, str]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Load:
        self.threads = [threading.Thread(target=self._chat, daemon=True) for _ in range(self.clients)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(timeout=ENOUGH)

    def _chat(self) -> None:
        client = self.tokenweir.client()
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                stream = client.chat.completions.create(
                    model=MODEL,
                    messages=[{"role": "user", "content": "Count to ten."}],
                    max_tokens=12,
                    stream=True,
                    timeout=httpx.Timeout(SILENCE),
                )
                for _ in stream:
                    pass
                outcome = "ok"
            except openai.APIError as error:
                outcome = f"{type(error).__name__}: {error}"
            except httpx.HTTPError as error:
                outcome = f"{type(error).__name__}: {error}"
            self.answers.append((began, time.monotonic(), outcome))

    def served(self, since: float = 0) -> int:
        """How many requests that began after `since` were answered well."""
        return sum(outcome == "ok" and began >= since for began, _, outcome in list(self.answers))

    def failures(self, since: float = 0) -> list[str]:
        """What went wrong for the requests that began after `since`, and when, in seconds after it."""
        return [
            f"{began - since:.1f}-{ended - since:.1f}: {outcome}"
            for began, ended, outcome in self.answers
            if began >= since and outcome != "ok"
        ]


def in_flight(tokenweir: Tokenweir) -> float:
    """Reservations that the gateways report, over all backends."""
    gateways = httpx.get(tokenweir.admin_url + "/api/gateways", timeout=PATIENCE).json()
    return sum(sum(gateway["in_flight"].values()) for gateway in gateways)


def state_of(tokenweir: Tokenweir, backend_id: str) -> str:
    """A backend's state, as the sidecar tells it."""
    answer = httpx.get(f"{tokenweir.admin_url}/api/backends/{backend_id}", timeout=PATIENCE)
    return str(answer.json()["state"])


def test_one_engine_killed_and_one_frozen_under_load(
    engines: list[LlamaEngine], tokenweir: Tokenweir
) -> None:
    with Load(tokenweir) as load:
        wait_until(lambda: load.served() >= 8, ENOUGH, "answers of all three engines")
        assert not load.failures()

        engines[0].kill()
        killed = time.monotonic()
        wait_until(lambda: load.served(since=killed + 1) >= 8, ENOUGH, "answers of the other two")
        assert len(load.failures()) <= load.clients, "only what was in flight on the killed engine may fail"
        assert not load.failures(since=killed + 1)

        engines[1].freeze()
        wait_until(lambda: state_of(tokenweir, "llama-1") == "down", what="the frozen engine out of rotation")
        out = time.monotonic()
        wait_until(lambda: load.served(since=out + 1) >= 8, ENOUGH, "answers of the last engine")
        assert not load.failures(since=out + 1)

    engines[1].thaw()
    wait_until(lambda: in_flight(tokenweir) == 0, what="the return of every reservation")
