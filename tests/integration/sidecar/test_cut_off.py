"""A sidecar is killed in the middle of what it does to an engine: the next one goes on, and nothing is left
half done for ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.sidecar.conftest import backend, snapshot, until
from tests.integration.sidecar.test_completions import record, send
from tests.integration.sidecar.test_operations import QUICK, program
from tests.integration.sidecar.test_snapshot import put_lease
from tokenweir.contract import names

HANGS = program("echo $$ >> pids; echo $TOKENWEIR_ACTION >> told; exec sleep 600")
WORKS = program("echo $TOKENWEIR_ACTION done >> told")


class Stage:
    """A sidecar as a process, whose programs hang, and what comes after it, whose programs work."""

    def __init__(self, folder: Path, killed: Any, follow: Any) -> None:
        self.killed = killed
        self.follow = follow
        self._file = folder / "told"
        self._pids = folder / "pids"

    def told(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []

    async def until_told(self, line: str) -> None:
        await until(lambda: line in self.told(), what=f"the program told {line!r}")

    def kill(self) -> None:
        """The sidecar and the programs that it runs."""
        self.killed.signal(signal.SIGKILL)
        self.killed.process.wait()
        self.end_programs()

    def end_programs(self) -> None:
        """Kill the programs that hang."""
        for pid in self._pids.read_text().split() if self._pids.exists() else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        self._pids.unlink(missing_ok=True)


@pytest.fixture
def stage(write_config, start_process, start_sidecar):
    made: list[Stage] = []

    async def start(backends: list[dict[str, Any]], **members: Any) -> Stage:
        def write(programs: list[str]) -> Path:
            command = dict.fromkeys(("restart", "start", "stop"), programs)
            actuator = {"command": {**command, "apply": [*programs, "{arguments}"]}}
            own = [{**one, "actuator": actuator} for one in backends]
            return write_config("one", backends=own, **{**QUICK, **members})

        path = write(HANGS)
        killed = start_process(path)
        await until(lambda: asyncio.to_thread(killed.leads), 60, "the sidecar leading")

        async def follow() -> Any:
            return await start_sidecar(write(WORKS))

        made.append(Stage(path.parent, killed, follow))
        return made[-1]

    yield start
    for one in made:
        one.end_programs()


async def test_a_restart_that_was_cut_off_is_done_again_where_the_engine_is_not_there(
    stage, store, engines, monkeypatch
):
    monkeypatch.setattr("sidecar.control.restart.UNWITNESSED_MS", 1000)
    first, second = engines(), engines()
    first.tokens = second.tokens = 1000
    made = await stage([{"id": "a", "url": first.url}, {"id": "b", "url": second.url}])
    await until(lambda: backend(store, "a").get("state") == "ready", what="a ready")
    await asyncio.to_thread(first.stop)
    await made.until_told("restart")
    made.kill()
    sidecar = await made.follow()
    await made.until_told("restart done")
    await asyncio.to_thread(first.start)
    await until(lambda: backend(store, "a").get("state") == "ready", what="a back")
    assert made.told() == ["restart", "restart done"]
    entries = (await sidecar.http.get("/api/actions?backend=a")).json()["entries"]
    assert [entry["stage"] for entry in entries] == ["done", "begun", "begun"]


async def test_an_engine_that_fell_with_its_sidecar_is_restarted_by_the_next(stage, store, engines):
    first, second = engines(), engines()
    made = await stage([{"id": "a", "url": first.url}, {"id": "b", "url": second.url}])
    await until(lambda: backend(store, "a").get("state") == "ready", what="a ready")
    await until(lambda: '"served":["a","b"]' in str(store.get("tw:control")), what="the memory of both")
    made.kill()
    await asyncio.to_thread(first.stop)
    await made.follow()
    await made.until_told("restart done")


async def test_a_change_that_was_cut_off_leaves_no_drain_behind_and_is_told(stage, store, engines):
    made = await stage([{"id": "a", "url": engines().url}, {"id": "b", "url": engines().url}])
    await until(lambda: backend(store, "a").get("state") == "ready", what="a ready")
    put_lease(store, a=1)
    url = f"http://127.0.0.1:{made.killed.port}/api/backends/a/variant"
    answer = await asyncio.to_thread(httpx.post, url, json={"arguments": ["--fast"]})
    assert answer.status_code == 202
    await until(lambda: backend(store, "a").get("state") == "draining", what="a draining")
    await until(lambda: "--fast" in str(store.get("tw:control")), what="the memory of it")
    made.kill()
    sidecar = await made.follow()
    await until(lambda: backend(store, "a").get("state") == "ready", what="a back")
    (alert,) = (await sidecar.http.get("/api/alerts")).json()
    assert (alert["kind"], alert["subject"], alert["page"]) == ("change_cut_off", "a", False)
    put_lease(store)
    answer = await sidecar.http.post("/api/backends/a/variant", json={"arguments": ["--fast"]})
    assert answer.status_code == 202
    await made.until_told("apply done")
    assert (await sidecar.http.get("/api/alerts")).json() == []


async def test_a_promotion_that_was_cut_off_is_done_by_the_next(stage, store, engines):
    serving, spare = engines(), engines()
    spare.stop()
    backends = [
        {"id": "a", "url": serving.url},
        {"id": "s", "url": spare.url, "role": "standby", "models": ["m"]},
    ]
    made = await stage(backends, standby={"promote": 0.001, "demote": 0.0005, "hold": "1ms"})
    await made.until_told("start")
    await until(lambda: '"promoted":["s"]' in str(store.get("tw:control")), what="the memory of it")
    made.kill()
    await made.follow()
    await made.until_told("start done")
    await asyncio.to_thread(spare.start)
    await until(lambda: backend(store, "s").get("state") == "ready", what="the spare in service")
    assert backend(store, "s")["role"] == "active"


async def test_an_engine_that_told_of_its_want_of_memory_is_restarted_once_though_its_sidecar_is_cut_off(
    stage, store, engines
):
    made = await stage([{"id": "a", "url": engines().url}, {"id": "b", "url": engines().url}])
    await until(lambda: backend(store, "a").get("state") == "ready", what="a ready")
    configured = snapshot(store)["thresholds"]["z"]
    first, late = (record(k, outcome="upstream_error", output=None, error="out_of_memory") for k in range(2))
    send(store, [first])
    await made.until_told("restart")
    await until(lambda: snapshot(store)["thresholds"]["z"] > configured, what="a wider margin")
    widened = snapshot(store)["thresholds"]["z"]
    made.kill()
    sidecar = await made.follow()
    # What was read and not stored is handed out again, too.
    send(store, [late], first=1)
    await until(lambda: store.xlen(names.COMPLETIONS) == 0, what="all records read")
    published = sidecar.plane.publisher.published
    await until(lambda: sidecar.plane.publisher.published >= published + 10, what="some ticks")
    assert made.told() == ["restart"]
    assert configured < snapshot(store)["thresholds"]["z"] <= widened
