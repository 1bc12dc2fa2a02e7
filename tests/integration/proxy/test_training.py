"""From traffic to better predictions: recorded completions train a model, and the gateway serves by it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from sidecar.learning import recording
from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import ROOT, wait_until
from tokenweir.contract.records import Completion

REQUESTS = 800
PACE_S = 0.011
"""A worker records a hundred in a second at most."""
LONG, SHORT = "Write an essay about", "Briefly, in a word, about"


SLOW_S = 3.0
"""What no request may take while a model is trained and taken into service: far more than noise, far less
than waiting for the training would."""


@dataclass(frozen=True)
class Engine:
    """An emulated engine, a hundred times as fast as a real one."""

    name: str
    port: int
    process: subprocess.Popen[str]


@pytest.fixture
def engines() -> Iterator[list[Engine]]:
    """Two of them."""
    started = []
    for number in range(2):
        command = [sys.executable, "-m", "emulator", "--port", "0", "--speed", "100"]
        process = subprocess.Popen(
            [*command, "--served-model-name", "llama"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        found = re.search(r"http://\S+:(\d+)", process.stdout.readline())
        assert found
        started.append(Engine(f"emulated-{number}", int(found[1]), process))
    yield started
    for engine in started:
        engine.process.terminate()
        engine.process.wait(30)


def ask(gateway: Gateway, number: int, long: bool) -> int:
    """One request; returns the tokens that were predicted of it."""
    text = "well " * (number % 29) + f"{LONG if long else SHORT} subject{number % 97}"
    answer = gateway.post(
        messages=[{"role": "user", "content": text}],
        headers={"X-Emulator-Output-Tokens": str(300 if long else 6)},
    )
    assert answer.elapsed.total_seconds() < SLOW_S
    assert answer.status_code == 200
    return int(answer.headers["X-Tokenweir-Predicted-Tokens"])


@pytest.mark.timeout(300)
def test_a_model_trained_from_the_traffic_is_served_without_a_request_failing(
    start_gateway: Callable[..., Gateway], engines: list[Engine], tmp_path: Path
) -> None:
    gateway = start_gateway([backend(engine) for engine in engines], {"predictor": {"sample": 1.0}})
    for number in range(REQUESTS):
        before = ask(gateway, number, number % 2 == 0)
        time.sleep(PACE_S)
    assert before > 20  # running figures cannot tell the two apart

    records = [Completion.model_validate(record) for record in gateway.completions(REQUESTS)]
    rows = [row for row in map(recording.row, records) if row is not None]
    assert len(rows) == REQUESTS
    folder = tmp_path / "completions"
    recording.write(folder, rows, 10**9)

    config = tmp_path / "tokenweir.yaml"
    config.write_text(yaml.safe_dump({"redis": {"host": "127.0.0.1", "port": gateway.config.redis.port}}))
    failed: list[str] = []
    trained = threading.Event()

    def traffic() -> None:
        number = 0
        while not trained.is_set():
            number += 1
            try:
                ask(gateway, number, number % 2 == 0)
            except AssertionError as error:
                failed.append(str(error))

    users = threading.Thread(target=traffic)
    users.start()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "model", "train", "--config", str(config), "--data", str(folder)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENWEIR_STATE_DIR": str(tmp_path / "state")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        version = gateway.redis.get("tw:predictor:current")
        assert isinstance(version, str)

        def live() -> bool:
            lines = (line.split() for line in gateway.page("applied").splitlines())
            applied = {int(pid): value for pid, name, value in lines if name == "predictor_model"}
            return all(applied.get(pid, "-") in version for pid in gateway.workers())

        wait_until(live, what="the trained model in every worker")
        assert gateway.metric("tokenweir_predictor", version=json.loads(version)["version"]) == 1
    finally:
        trained.set()
        users.join()
    assert not failed
    long, short = (ask(gateway, 5, kind) for kind in (True, False))
    assert short < 60 < long
