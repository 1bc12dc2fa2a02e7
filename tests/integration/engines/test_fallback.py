"""Level 4 of the breaker: when its own servers are gone, a small real engine answers for a large model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.engines.conftest import MODEL, ROOT, Tokenweir, running, start_engine, wait_for
from tests.integration.servers import wait_until
from tests.ports import free_port

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

LARGE = "large"
BY = "X-Tokenweir-Backend"
MARK = "X-Tokenweir-Degraded"


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    """Starts an emulated server of the large model on a port."""
    started: list[subprocess.Popen[bytes]] = []

    def start(port: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "emulator", "--port", str(port), "--served-model-name", LARGE]
        with (tmp_path / f"{port}.log").open("ab") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT))
        wait_for(f"http://127.0.0.1:{port}/health")
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def ask(tokenweir: Tokenweir, **members: Any) -> httpx.Response:
    body = {
        "model": LARGE,
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 8,
        **members,
    }
    return httpx.post(tokenweir.base_url + "/chat/completions", json=body, timeout=60)


def test_a_real_small_engine_answers_for_the_large_model_until_that_is_back(
    tmp_path: Path, large: Callable[[int], subprocess.Popen[bytes]]
) -> None:
    small = start_engine(tmp_path / "small.log")
    ports = [free_port(), free_port()]
    processes = [large(port) for port in ports]
    wait_for(small.url + "/health")
    backends: list[dict[str, Any]] = [
        {"id": f"large-{number}", "url": f"http://127.0.0.1:{port}", "models": [LARGE]}
        for number, port in enumerate(ports)
    ]
    backends.append({"id": "small", "url": small.url, "models": [MODEL], "role": "fallback"})
    members = {
        "backends": backends,
        "models": [{"name": LARGE, "fallback": MODEL}],
        "breaker": {"quorum_hold": "1s"},
    }
    try:
        with running(tmp_path, **members) as tokenweir:
            answer = ask(tokenweir)
            assert answer.headers[BY].startswith("large-")
            assert MARK not in answer.headers

            for process in processes:
                process.kill()
                process.wait()
            wait_until(lambda: ask(tokenweir).headers.get(BY) == "small", what="the small engine's answer")
            answer = ask(tokenweir)
            assert answer.status_code == 200
            assert answer.headers[MARK] == "fallback-model"
            assert answer.json()["model"] == MODEL, "the engine was asked for its own model"
            assert answer.json()["choices"][0]["message"]["content"]
            stream = ask(tokenweir, stream=True)
            assert stream.headers[MARK] == "fallback-model"
            assert stream.text.rstrip().endswith("data: [DONE]")
            control = httpx.get(tokenweir.admin_url + "/api/control").json()["models"][LARGE]
            assert control["decision"]["level"] == 4

            large(ports[0])
            wait_until(lambda: ask(tokenweir).headers.get(BY) == "large-0", what="the large model's return")
            assert MARK not in ask(tokenweir).headers
    finally:
        small.kill()
