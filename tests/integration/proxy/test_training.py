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
from functools import partial
from pathlib import Path

import httpx
import pytest
import yaml

from model import export
from model.core import Core
from model.publication import Publication
from sidecar.learning import recording
from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import ROOT, wait_until
from tokenweir.contract import names
from tokenweir.contract.records import Completion

REQUESTS = 800
PACE_S = 0.011
"""A worker records a hundred in a second at most."""
LONG, SHORT = "Write an essay about", "Briefly, in a word, about"


SLOW_S = 3.0
"""What no request may take while a model is trained: far more than noise, far less than waiting for the
training would."""
PUBLICATIONS = 6
CALM_S = 1.5
AROUND_S = 0.5
"""How long requests are looked at after a model is in service."""


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


class Users:
    """Two clients that ask for short answers all the time; `times` has what each request took, ms."""

    def __init__(self, gateway: Gateway) -> None:
        self.times: list[float] = []
        self.failed: list[str] = []
        self._gateway = gateway
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(2)]

    def _ask(self, number: int) -> None:
        while not self._stop.is_set():
            number += 2
            try:
                began = time.perf_counter()
                ask(self._gateway, number, long=False)
                self.times.append(1000 * (time.perf_counter() - began))
            except (AssertionError, httpx.HTTPError) as error:
                self.failed.append(repr(error))

    def __enter__(self) -> Users:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def taken(self, during: Callable[[], None]) -> list[float]:
        """What the requests took that ended while this ran."""
        first = len(self.times)
        during()
        return self.times[first:]


def in_service(gateway: Gateway, version: str) -> bool:
    """Whether every worker predicts by this model."""
    lines = (line.split() for line in gateway.page("applied").splitlines())
    applied = {int(pid): value for pid, name, value in lines if name == "predictor_model"}
    return all(applied.get(pid) == version for pid in gateway.workers())


def look(gateway: Gateway, version: str, seconds: float) -> None:
    """Look again and again for so long, and until every worker predicts by this model."""
    end = time.monotonic() + seconds
    wait_until(lambda: in_service(gateway, version) and time.monotonic() >= end, what=f"{version} in service")


def publish(gateway: Gateway, publication: Publication, version: str, document: str) -> None:
    """Publish, and stay until a while after it is in service."""
    publication.publish(version, document)
    look(gateway, version, 0)
    look(gateway, version, AROUND_S)


def quantile(values: list[float], level: float) -> float:
    return sorted(values)[int(level * (len(values) - 1))]


def figures(windows: list[list[float]]) -> tuple[float, float, float]:
    """Median and p99 of all, and the slowest of a window, in the median: single hiccups are the machine's."""
    together = [took for window in windows for took in window]
    assert len(together) > 100
    return quantile(together, 0.5), quantile(together, 0.99), quantile([max(w) for w in windows], 0.5)


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

        wait_until(
            lambda: in_service(gateway, json.loads(version)["version"]), what="the model in every worker"
        )
        assert gateway.metric("tokenweir_predictor", version=json.loads(version)["version"]) == 1
    finally:
        trained.set()
        users.join()
    assert not failed
    long, short = (ask(gateway, 5, kind) for kind in (True, False))
    assert short < 60 < long
    document = gateway.redis.get(names.PREDICTOR_MODEL + json.loads(version)["version"])
    requests_are_as_fast_while_models_come_into_service(gateway, str(document))


def requests_are_as_fast_while_models_come_into_service(gateway: Gateway, model: str) -> None:
    """The trained model under new names, one after the other, with calm between: what requests take then and
    then. The bounds are far from the noise of a busy machine, and far below what decoding or checking a model
    would cost were it done at once with requests waiting for it."""
    core, publication = Core(), Publication(gateway.redis)
    payload = json.loads(json.loads(model)["payload"])
    calm: list[list[float]] = []
    busy: list[list[float]] = []
    in_force = json.loads(str(gateway.redis.get("tw:predictor:current")))["version"]
    with Users(gateway) as users:
        for number in range(PUBLICATIONS):
            # The same looks at what is in force, lest these make the difference.
            calm.append(users.taken(partial(look, gateway, in_force, CALM_S)))
            in_force = f"again-{number}"
            document = export.envelope({**payload, "version": in_force}, core)

            busy.append(users.taken(partial(publish, gateway, publication, in_force, document)))
    assert not users.failed
    (p50, p99, slowest), then = figures(calm), figures(busy)
    told = f"calm {p50, p99, slowest} ms, while models come into service {then} ms"
    assert then[0] <= 1.25 * p50 + 1, told
    assert then[1] <= 1.5 * p99 + 20, told
    assert then[2] <= 1.5 * slowest + 30, told
