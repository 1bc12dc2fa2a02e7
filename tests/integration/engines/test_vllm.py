"""Real vLLM engines behind a whole Tokenweir: `make test-vllm VLLM=/path/to/vllm`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.integration.engines.conftest import Tokenweir, running, wait_for
from tests.integration.engines.test_failures import in_flight, state_of
from tests.integration.engines.vllm_engine import BLOCKS, CONTEXT, MODEL, VllmEngine, start_vllm
from tests.integration.servers import wait_until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

LOADING = 400
CHAT: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Which backend has room for this request?"}],
    "max_tokens": 24,
    "temperature": 0,
}
LONG: dict[str, Any] = {**CHAT, "max_tokens": 1800, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[VllmEngine]]:
    """Two of them, ready."""
    vllm = Path(os.environ["VLLM"])
    folder = tmp_path_factory.mktemp("vllm")
    weights = folder / "tiny"
    python = vllm.parent / "python"
    subprocess.run([python, Path(__file__).parent / "tiny_llama.py", weights], check=True, timeout=120)
    started = [start_vllm(vllm, weights, folder / f"engine-{number}.log") for number in range(2)]
    try:
        for engine in started:
            wait_for(engine.url + "/health", LOADING)
        yield started
    finally:
        for engine in started:
            engine.stop()


@pytest.fixture(scope="module")
def tokenweir(engines: list[VllmEngine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokenweir]:
    """A Tokenweir over both."""
    backends = [{"url": engine.url, "id": f"vllm-{number}"} for number, engine in enumerate(engines)]
    with running(tmp_path_factory.mktemp("tokenweir"), backends=backends) as started:
        yield started


def direct(engine: VllmEngine) -> openai.OpenAI:
    return openai.OpenAI(base_url=engine.url + "/v1", api_key="unused", max_retries=0, timeout=60)


def working(engines: list[VllmEngine]) -> int:
    return sum(engine.running() for engine in engines)


def test_what_an_engine_can_hold_is_asked_of_it(tokenweir: Tokenweir) -> None:
    for backend in httpx.get(f"{tokenweir.admin_url}/api/backends").json():
        decision = backend["decision"]
        assert (decision["engine"], decision["context"]) == ("vllm", CONTEXT)
        assert decision["capacity"] % BLOCKS == 0 and decision["capacity"] >= CONTEXT


def test_a_chat_is_answered_as_the_engine_answers_it(engines: list[VllmEngine], tokenweir: Tokenweir) -> None:
    through = tokenweir.client().chat.completions.create(**CHAT)
    asked = direct(engines[0]).chat.completions.create(**CHAT)
    assert through.choices[0].message.content == asked.choices[0].message.content
    assert through.usage is not None and asked.usage is not None
    assert through.usage.completion_tokens == asked.usage.completion_tokens


@pytest.mark.parametrize("stream", [True, False])
def test_the_engine_stops_when_the_client_leaves(
    engines: list[VllmEngine], tokenweir: Tokenweir, stream: bool
) -> None:
    with pytest.raises(httpx.TimeoutException):
        httpx.post(
            f"{tokenweir.base_url}/chat/completions",
            json={**CHAT, "max_tokens": 1800, "ignore_eos": True, "stream": stream},
            timeout=httpx.Timeout(30, read=0.01 if stream else 1.5),
        )
    wait_until(lambda: working(engines) == 0, what="the end of the work for a client that left")
    wait_until(lambda: in_flight(tokenweir) == 0, what="the return of its reservation")


def test_a_conversation_stays_with_the_engine_that_has_its_cache(tokenweir: Tokenweir) -> None:
    client = tokenweir.client()
    messages = [{"role": "user", "content": "Tell of caches. " * 60}]
    places, cached = set(), []
    for turn in range(4):
        answer = client.chat.completions.with_raw_response.create(**{**CHAT, "messages": messages})  # type: ignore[arg-type]
        chat = answer.parse()
        places.add(answer.headers["x-tokenweir-backend"])
        assert chat.usage is not None
        details = chat.usage.prompt_tokens_details
        cached.append((details and details.cached_tokens) or 0)
        messages += [
            {"role": "assistant", "content": chat.choices[0].message.content or ""},
            {"role": "user", "content": f"And then, in turn {turn}?"},
        ]
    assert len(places) == 1
    assert cached[0] == 0 and min(cached[1:]) > 0


def test_an_engine_whose_core_stands_still_is_left_out_though_its_server_answers(
    engines: list[VllmEngine], tokenweir: Tokenweir
) -> None:
    def ejected() -> Any:
        backend = httpx.get(f"{tokenweir.admin_url}/api/backends/vllm-{frozen}").json()
        return "hang" in backend["ejected_by"].values()

    client = tokenweir.client()
    streams = [client.chat.completions.create(**LONG, stream=True) for _ in range(2)]
    for stream in streams:
        next(iter(stream))
    frozen = max(range(2), key=lambda number: engines[number].running())
    engines[frozen].signal_core(signal.SIGSTOP)
    try:
        assert httpx.get(engines[frozen].url + "/health", timeout=5).status_code == 200
        wait_until(ejected, what="the ejection of the engine that stands still")
        for _ in range(4):
            answer = client.chat.completions.with_raw_response.create(**CHAT)
            assert answer.headers["x-tokenweir-backend"] == f"vllm-{1 - frozen}"
    finally:
        engines[frozen].signal_core(signal.SIGCONT)
    for stream in streams:
        stream.close()
    wait_until(lambda: in_flight(tokenweir) == 0, what="the return of every reservation")
    wait_until(lambda: not ejected(), what="the return of the engine")


def test_an_engine_whose_core_dies_fails_only_what_it_had(
    engines: list[VllmEngine], tokenweir: Tokenweir
) -> None:
    client = tokenweir.client()
    streams = [client.chat.completions.create(**LONG, stream=True) for _ in range(3)]
    for stream in streams:
        next(iter(stream))
    killed = max(range(2), key=lambda number: engines[number].running())
    had = engines[killed].running()
    engines[killed].signal_core(signal.SIGKILL)
    wait_until(lambda: state_of(tokenweir, f"vllm-{killed}") == "down", what="the dead engine out")
    out = time.monotonic()
    while time.monotonic() < out + 3:
        assert client.chat.completions.create(**CHAT).choices
    broken = 0
    for stream in streams:
        try:
            for _ in stream:
                pass
        except openai.APIError:
            broken += 1
    assert broken == had
    wait_until(lambda: in_flight(tokenweir) == 0, what="the return of every reservation")
