"""Three real llama.cpp engines behind a whole Tokenweir, started as a user starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml

from tests.ports import free_port

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MODEL = "smollm2"


def wait_for(url: str, seconds: float = 60) -> None:
    """Return once `url` answers 200."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if httpx.get(url, timeout=1).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise TimeoutError(f"{url} did not answer 200 within {seconds} s")


@dataclass
class LlamaEngine:
    """One llama.cpp server process."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def busy(self) -> int:
        """Requests that it works on now."""
        page = httpx.get(self.url + "/metrics", timeout=5).text
        line = next(line for line in page.splitlines() if line.startswith("llamacpp:requests_processing "))
        return int(float(line.split()[1]))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)


def start_engine(log: Path, port: int | None = None, *options: str) -> LlamaEngine:
    """Start one engine; it is ready when `wait_for(engine.url + "/health")` returns."""
    port = port or free_port()
    command = [sys.executable, str(HERE / "llama_engine.py"), "--port", str(port), *options]
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent)
    return LlamaEngine(port, process)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LlamaEngine]]:
    """Three engines, loaded and ready."""
    folder = tmp_path_factory.mktemp("engines")
    running = [start_engine(folder / f"engine-{number}.log") for number in range(3)]
    try:
        for engine in running:
            wait_for(engine.url + "/health")
        yield running
    finally:
        for engine in running:
            engine.thaw()
            engine.kill()


@dataclass
class Tokenweir:
    """A running Tokenweir."""

    base_url: str
    admin_url: str

    def client(self) -> openai.OpenAI:
        """The official SDK, pointed at the gateway."""
        return openai.OpenAI(base_url=self.base_url, api_key="unused", max_retries=0, timeout=60)


@contextmanager
def running(folder: Path, **members: Any) -> Iterator[Tokenweir]:
    """`tokenweir up` with this configuration; `tokenweir down` afterwards."""
    gateway, admin = free_port(), free_port()
    config = {
        "listen": {"port": gateway, "workers": 2, "metrics_port": free_port()},
        "admin": {"port": admin},
        "redis": {"port": free_port()},
        "state_dir": str(folder / "state"),
        **members,
    }
    path = folder / "tokenweir.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "tokenweir"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        up = subprocess.run(
            [*command, "up", "--config", str(path)],
            capture_output=True,
            text=True,
            timeout=90,
            cwd=ROOT,
            env=environment,
            check=False,
        )
        assert up.returncode == 0, up.stdout + up.stderr
        yield Tokenweir(f"http://127.0.0.1:{gateway}/v1", f"http://127.0.0.1:{admin}")
    finally:
        subprocess.run(
            [*command, "down", "--config", str(path)], timeout=60, cwd=ROOT, env=environment, check=True
        )


@pytest.fixture(scope="module")
def tokenweir(engines: list[LlamaEngine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokenweir]:
    """A Tokenweir over the three engines."""
    backends = [{"url": engine.url, "id": f"llama-{number}"} for number, engine in enumerate(engines)]
    with running(tmp_path_factory.mktemp("tokenweir"), backends=backends) as started:
        yield started
