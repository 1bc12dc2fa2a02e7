"""What an operator orders of engines, and what is done about those that fail, with programs as actuators."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.integration.sidecar.conftest import backend, snapshot, until
from tests.integration.sidecar.test_snapshot import put_lease

QUICK = {"ramp": {"warm_up": 2}, "restart": {"back_off": "200ms", "crash_hold": "300ms"}}


def program(text: str, *arguments: str) -> list[str]:
    return ["sh", "-c", text, "sh", *arguments]


def actuator(**more: Any) -> dict[str, Any]:
    """Programs that write down what they were told."""
    return {
        "command": {
            "restart": program("echo restart $TOKENWEIR_BACKEND >> told"),
            "start": program("echo start >> told"),
            "stop": program("echo stop >> told"),
            "apply": program('echo apply "$@" >> told', "{arguments}"),
        },
        **more,
    }


class Stage:
    """Two engines of one model, the first with an actuator."""

    def __init__(self, sidecar: Any, store: Any, folder: Path, first: Any) -> None:
        self.sidecar, self.http, self.store, self.first = sidecar, sidecar.http, store, first
        self._file = folder / "told"

    def told(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []

    async def until_told(self, line: str) -> None:
        await until(lambda: line in self.told(), what=f"the program told {line!r}")

    async def until_state(self, state: str) -> None:
        await until(lambda: backend(self.store, "a").get("state") == state, what=f"a {state}")

    async def order(self, what: str, status: int, **body: Any) -> Any:
        answer = await self.http.post(f"/api/backends/a/{what}", **({"json": body} if body else {}))
        assert answer.status_code == status, answer.text
        return answer.json()

    async def get(self, path: str) -> Any:
        return (await self.http.get(path)).json()


@pytest.fixture
def stage(write_config, start_sidecar, store, engines):
    async def start(**members: Any) -> Stage:
        first, second = engines(), engines()
        first.tokens = second.tokens = 1000
        backends = [
            {"id": "a", "url": first.url, "actuator": members.pop("actuator", actuator())},
            {"id": "b", "url": second.url},
        ]
        path = write_config("one", backends=backends, **{**QUICK, **members})
        made = Stage(await start_sidecar(path), store, path.parent, first)
        await made.until_state("ready")
        await until(lambda: backend(store, "b").get("state") == "ready", what="b ready")
        return made

    return start


async def test_an_ordered_restart_takes_it_out_and_brings_it_back_with_a_small_share(stage):
    made = await stage()
    assert await made.order("restart", 202) == {"restart": "wanted"}
    await made.order("restart", 409)
    await made.until_told("restart a")
    await made.until_state("down")
    assert "an operator asked for it" in (await made.get("/api/control"))["restarts"]["a"]
    # The old process still answers: it is not believed.
    await asyncio.sleep(0.5)
    assert backend(made.store, "a")["state"] == "down"
    await asyncio.to_thread(made.first.restart)
    await made.until_state("ready")
    assert backend(made.store, "a")["admit"] == pytest.approx(0.05, abs=0.03)
    assert backend(made.store, "b")["admit"] == 1
    assert (await made.get("/api/control"))["restarts"] == {}
    entries = (await made.get("/api/actions?backend=a"))["entries"]
    assert [(entry["action"], entry["stage"]) for entry in entries] == [
        ("restart", "done"),
        ("restart", "begun"),
    ]
    assert entries[0]["reason"] == "an operator asked for it"
    assert made.told() == ["restart a"]


async def test_an_engine_that_crashes_again_and_again_is_left_out_until_it_is_brought_back(stage):
    made = await stage(restart={"most_per_hour": 1, "back_off": "200ms", "crash_hold": "300ms"})
    await asyncio.to_thread(made.first.stop)
    await made.until_told("restart a")
    await asyncio.to_thread(made.first.start)
    await made.until_state("ready")
    await asyncio.to_thread(made.first.stop)

    async def alerts() -> dict[str, Any]:
        return {alert["kind"]: alert for alert in await made.get("/api/alerts")}

    async def paged() -> bool:
        found = (await alerts()).get("restarts_spent")
        return found is not None and found["page"] and found["subject"] == "a"

    await until(paged, what="a page")
    await asyncio.to_thread(made.first.start)
    await asyncio.sleep(1)
    assert backend(made.store, "a")["state"] == "down"
    assert made.told() == ["restart a"]
    assert await made.order("return", 200) == {"was_left_out": True}
    await made.until_state("ready")
    assert await alerts() == {}
    assert await made.order("return", 200) == {"was_left_out": False}


async def test_a_program_that_fails_is_told_and_tried_again(stage):
    failing = program("echo no such unit; test -e mended && echo restart a >> told")
    made = await stage(actuator={"command": {"restart": failing}})
    await made.order("restart", 202)

    async def failed() -> bool:
        return any(alert["kind"] == "restart_failed" for alert in await made.get("/api/alerts"))

    await until(failed, what="the alert")
    entries = (await made.get("/api/actions"))["entries"]
    assert any("no such unit" in entry["detail"] for entry in entries if entry["stage"] == "failed")
    (made.sidecar.plane.folder / "mended").touch()
    await made.until_told("restart a")
    await asyncio.to_thread(made.first.restart)
    await made.until_state("ready")
    assert await made.get("/api/alerts") == []


async def test_a_program_that_hangs_is_told_and_waited_for(stage):
    hanging = program("echo restart a >> told; until test -e go; do sleep 0.05; done")
    made = await stage(actuator={"command": {"restart": hanging}, "timeout": "60s"})
    made.sidecar.plane.actuators.of("a")._timeout_ms = 300
    await made.order("restart", 202)

    async def alert() -> str:
        return "".join(
            one["text"] for one in await made.get("/api/alerts") if one["kind"] == "restart_failed"
        )

    async def late() -> bool:
        return "no end within" in await alert()

    await until(late, what="the alert")
    await asyncio.sleep(1)
    assert made.told() == ["restart a"]
    assert (await made.get("/api/control"))["restarts"]["a"].startswith("restart ordered")
    (made.sidecar.plane.folder / "go").touch()
    await asyncio.to_thread(made.first.restart)
    await made.until_state("ready")
    assert await alert() == ""
    assert made.told() == ["restart a"]


async def test_another_variant_waits_for_what_runs_there(stage):
    made = await stage()
    put_lease(made.store, a=1)
    await until(lambda: made.sidecar.plane.gateways.in_flight("a") == 1, what="the lease")
    arguments = ["--quantization", "fp8"]
    await made.order("variant", 202, arguments=arguments, precision="fp8")
    await made.order("variant", 409, arguments=arguments)
    await made.until_state("draining")
    await asyncio.sleep(0.5)
    assert made.told() == []
    put_lease(made.store)
    await made.until_told("apply --quantization fp8")
    await asyncio.to_thread(made.first.restart)
    await made.until_state("ready")
    row = backend(made.store, "a")
    assert row["precision"] == "fp8"
    assert row["admit"] < 1
    await until(lambda: made.sidecar.plane.operations.under_way() == [], what="the end of the change")


async def test_a_variant_does_not_wait_beyond_its_deadline(stage):
    made = await stage()
    for _ in range(2):
        put_lease(made.store, a=1)
        await until(lambda: made.sidecar.plane.gateways.in_flight("a") == 1, what="the lease")
    await made.order("variant", 202, arguments=["--fast"], deadline_s=0.2)
    await made.until_told("apply --fast")
    await asyncio.to_thread(made.first.restart)
    put_lease(made.store)
    await made.until_state("ready")


async def test_a_variant_that_cannot_be_applied_leaves_the_backend_as_it_was(stage):
    made = await stage(actuator={"command": {"restart": program("true")}})
    put_lease(made.store)
    await made.order("variant", 202, arguments=["--fast"], precision="fp8")
    await until(lambda: made.sidecar.plane.operations.under_way() == [], what="the end of the change")
    await made.until_state("ready")
    assert backend(made.store, "a")["precision"] != "fp8"
    entries = (await made.get("/api/actions"))["entries"]
    assert "no program is configured to apply it" in entries[0]["detail"]


async def test_a_dry_run_does_nothing_and_says_what_it_would_have_done(stage):
    made = await stage(actuator=actuator(dry_run=True))
    await made.order("restart", 202)

    async def noted() -> bool:
        entries = (await made.get("/api/actions"))["entries"]
        return [entry["stage"] for entry in entries] == ["dry run"]

    await until(noted, what="the entry")
    actions = await made.get("/api/actions")
    assert actions["dry_run"] == ["a"]
    assert "echo restart" in actions["entries"][0]["detail"]
    await until(lambda: backend(made.store, "a").get("state") == "ready", 5, what="a ready")
    assert made.told() == []


async def test_orders_that_cannot_be_carried_out_are_refused_with_the_reason(stage):
    made = await stage()
    answer = await made.http.post("/api/backends/b/restart")
    assert answer.status_code == 409
    assert "actuator" in answer.text
    answer = await made.http.post("/api/backends/none/restart")
    assert answer.status_code == 404
    assert "a, b" in answer.text
    await made.order("variant", 422, arguments=[])
    await made.order("drain", 200)
    assert "drained" in str(await made.order("variant", 409, arguments=["x"]))
    assert made.told() == []


async def test_only_the_leader_acts(stage, write_config, start_sidecar):
    made = await stage()
    backends = [{"id": "a", "url": made.first.url, "actuator": actuator()}]
    other = await start_sidecar(write_config("two", backends=backends))
    await until(lambda: not other.plane.leader.leading and other.plane.leader.holder, what="a follower")
    answer = await other.http.post("/api/backends/a/restart")
    assert answer.status_code == 409
    assert made.sidecar.plane.id in answer.text
    assert snapshot(made.store)["fence"] == made.sidecar.plane.leader.fence
