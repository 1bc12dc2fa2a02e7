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

pytestmark = pytest.mark.engine


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
            thread.join(timeout=40)

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
                    timeout=httpx.Timeout(8),
                )
                for _ in stream:
                    pass
                outcome = "ok"
            except openai.APIError as error:
                outcome = f"{type(error).__name__}: {error}"
            except httpx.HTTPError as error:
                outcome = f"{type(error).__name__}: {error}"
            self.answers.append((began, time.monotonic(), outcome))

    def failures(self, since: float = 0) -> list[str]:
        """What went wrong for the requests that began after `since`."""
        return [outcome for began, _, outcome in self.answers if began >= since and outcome != "ok"]


def in_flight(tokenweir: Tokenweir) -> float:
    """Reservations that the gateways report, over all backends."""
    gateways = httpx.get(tokenweir.admin_url + "/api/gateways", timeout=5).json()
    return sum(sum(gateway["in_flight"].values()) for gateway in gateways)


def test_one_engine_killed_and_one_frozen_under_load(
    engines: list[LlamaEngine], tokenweir: Tokenweir
) -> None:
    with Load(tokenweir) as load:
        time.sleep(4)
        assert not load.failures()

        engines[0].kill()
        killed = time.monotonic()
        time.sleep(4)
        assert len(load.failures()) <= load.clients, "only what was in flight on the killed engine may fail"
        assert not load.failures(since=killed + 1)

        engines[1].freeze()
        frozen = time.monotonic()
        time.sleep(12)
        assert not load.failures(since=frozen + 5), "a frozen engine must be out of rotation within 5 s"

    served = [began for began, _, outcome in load.answers if outcome == "ok" and began > frozen + 5]
    assert served, "the last engine goes on serving"
    engines[1].thaw()
    end = time.monotonic() + 20
    while in_flight(tokenweir):
        assert time.monotonic() < end, "every reservation must come back"
        time.sleep(0.2)
