"""The fleet at a glance: what an operator sees of levels, roles, spares and alerts."""

from __future__ import annotations

import time
from typing import Any

from tests.integration.sidecar.conftest import until
from tokenweir.contract import names
from tokenweir.contract.records import Lease, QueueState


def put_waiting(store: Any, depth: int, oldest_ms: float) -> None:
    """A gateway in which so many requests wait for the model `m`, and which has ejected `b`."""
    now = int(time.time() * 1000)
    queue = {"m": QueueState(depth=depth, oldest_ms=oldest_ms)}
    lease = Lease(id="g1", time_ms=now, sequence=1, queue=queue, ejected={"b": "3 failures in a row"})
    store.set(names.GATEWAY + "g1", lease.dump(), px=60_000)
    store.zadd(names.GATEWAYS, {"g1": now})


async def test_levels_and_who_waits_are_shown_by_model(write_config, start_sidecar, store, engines):
    engine = engines()
    backends = [{"id": "a", "url": engine.url, "gpu": "H100"}, {"id": "b", "url": engines().url}]
    sidecar = await start_sidecar(write_config("one", backends=backends, breaker={"rule": "literal"}))

    async def fleet() -> dict[str, Any]:
        return (await sidecar.http.get("/api/fleet")).json()

    async def ready() -> bool:
        return (await fleet())["models"].get("m", {}).get("unusual") == ""

    await until(ready, what="a model in its usual state")
    engine.kv_use = 0.97

    async def level_2() -> bool:
        put_waiting(store, depth=4, oldest_ms=1500)
        model = (await fleet())["models"]["m"]
        return model["level"] == 2 and model["waiting"] == 4

    await until(level_2, what="level 2")
    told = await fleet()
    assert told["models"]["m"]["longest_wait_ms"] == 1500
    assert "low priority is dropped" in told["models"]["m"]["unusual"]
    row, other = told["backends"]
    assert (row["role"], row["shown"], row["gpu"]) == ("active", "ready", "H100")
    assert row["ejected_by"] == {}
    assert other["ejected_by"] == {"g1": "3 failures in a row"}
    assert row["low"] is not None


async def test_a_spare_that_is_stopped_on_purpose_is_told_from_one_that_is_down(
    write_config, start_sidecar, store, engines
):
    gone, lost = engines(), engines()
    gone.stop()
    lost.stop()
    actuator = {"command": {"start": ["true"], "restart": ["true"]}}
    backends = [
        {"id": "a", "url": engines().url},
        {"id": "spare", "url": gone.url, "models": ["m"], "role": "standby", "actuator": actuator},
        {"id": "lost", "url": lost.url, "models": ["m"], "role": "standby"},
    ]
    sidecar = await start_sidecar(write_config("one", backends=backends))

    async def rows() -> dict[str, Any]:
        return {row["id"]: row for row in (await sidecar.http.get("/api/fleet")).json()["backends"]}

    async def down() -> bool:
        found = await rows()
        return {found["spare"]["state"], found["lost"]["state"]} == {"down"}

    await until(down, what="both away")
    found = await rows()
    assert {name: (row["role"], row["shown"]) for name, row in found.items()} == {
        "a": ("active", "ready"),
        "spare": ("standby", "standby"),
        "lost": ("standby", "down"),
    }
    assert found["spare"]["reason"].startswith("stopped while it is not needed (")
    assert not found["lost"]["reason"].startswith("stopped")
    text = (await sidecar.http.get("/metrics")).text
    assert 'tokenweir_sidecar_backend_state{backend="spare",state="standby"} 1.0' in text
    assert 'tokenweir_sidecar_backend_state{backend="spare",state="down"} 0.0' in text
    assert 'tokenweir_sidecar_backend_state{backend="lost",state="down"} 1.0' in text


async def test_what_stands_as_an_alert_is_in_the_fleet_too(write_config, start_sidecar, store, engines):
    engine = engines()
    sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engine.url}]))
    http = sidecar.http

    async def served() -> bool:
        return (await http.get("/api/fleet")).json()["backends"][0]["state"] == "ready"

    await until(served, what="a ready")
    engine.stop()

    async def alerts() -> list[dict[str, Any]]:
        return (await http.get("/api/fleet")).json()["alerts"]

    await until(alerts, what="an alert")
    told = (await alerts())[0]
    assert (told["kind"], told["subject"], told["page"]) == ("no_actuator", "a", False)
    assert told["since_ms"] > 0
    assert told["text"]
    schema = (await http.get("/openapi.json")).json()["components"]["schemas"]
    assert {"models", "alerts", "backends"} <= set(schema["FleetView"]["properties"])
    assert {"level", "fallback", "waiting", "unusual"} <= set(schema["FleetModel"]["properties"])
