"""What is published, and when."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.integration.sidecar.conftest import backend, quickest, snapshot, until
from tokenweir.contract import names
from tokenweir.contract.records import BackendLoad, Lease, Settings, Snapshot, Stats
from tokenweir.render import Paths


def put_lease(store, **backends):
    loads = {name: BackendLoad(n=n, held=100 * n) for name, n in backends.items()}
    now = int(time.time() * 1000)
    lease = Lease(id="g1", time_ms=now, sequence=1, backends=loads)
    store.set(names.GATEWAY + "g1", lease.dump(), px=60_000)
    store.zadd(names.GATEWAYS, {"g1": now})


async def test_every_document_keeps_the_contract(write_config, start_sidecar, store, engines):
    await start_sidecar(
        write_config("one", backends=[engines().url], models=[{"name": "m", "aliases": ["gpt-4"]}])
    )
    await until(lambda: store.get(names.STATS), what="stats")
    published = Snapshot.model_validate_json(store.get(names.SNAPSHOT))
    assert published.backends[0].models == {"m": "m"}
    assert Settings.model_validate_json(store.get(names.SETTINGS)).models[0].aliases == ["gpt-4"]
    assert Stats.model_validate_json(store.get(names.STATS)).models == {}


async def test_a_snapshot_comes_every_interval(write_config, start_sidecar, store, engines):
    await start_sidecar(write_config("one", backends=[engines().url]))
    await until(lambda: snapshot(store), what="a snapshot")

    async def ten():
        first, began = snapshot(store)["sequence"], time.monotonic()
        await until(lambda: snapshot(store)["sequence"] >= first + 10, what="ten snapshots")
        return time.monotonic() - began

    assert 0.8 < await quickest(ten, enough=1.4) < 1.4


async def test_a_change_of_state_is_published_at_once(write_config, start_sidecar, store, engines):
    path = write_config("one", backends=[{"id": "a", "url": engines().url}], telemetry={"interval": "2s"})
    sidecar = await start_sidecar(path)
    await until(lambda: backend(store, "a").get("state") == "ready", what="ready")
    # Snapshots come every half second in any case.
    took = 0.0
    for _ in range(5):
        for change, state in (("drain", "draining"), ("undrain", "ready")):
            await sidecar.http.post(f"/api/backends/a/{change}")
            took += await until(lambda wanted=state: backend(store, "a")["state"] == wanted, what=state)
    assert took < 1.5


async def test_the_first_snapshot_waits_until_every_backend_was_looked_at(
    write_config, start_sidecar, store, engines
):
    await start_sidecar(write_config("one", backends=[engines().url, engines().url]))
    await until(lambda: snapshot(store), what="a snapshot")
    assert {row["state"] for row in snapshot(store)["backends"]} == {"ready"}


async def test_a_loading_engine_is_starting_and_then_ready(write_config, start_sidecar, store, engines):
    engine = engines()
    engine.loading = True
    await start_sidecar(write_config("one", backends=[{"id": "a", "url": engine.url}]))
    await until(lambda: backend(store, "a").get("state") == "starting", what="starting")
    assert "503" in backend(store, "a")["reasons"][0]
    engine.loading = False
    assert await until(lambda: backend(store, "a")["state"] == "ready", what="ready") < 2


async def test_a_stopped_engine_is_down_and_comes_back(write_config, start_sidecar, store, engines):
    engine = engines()
    await start_sidecar(write_config("one", backends=[{"id": "a", "url": engine.url}]))
    await until(lambda: backend(store, "a").get("state") == "ready", what="ready")
    engine.stop()
    await until(lambda: backend(store, "a")["state"] == "down", what="down")
    assert backend(store, "a")["scrape_failures"] >= 2
    engine.start()
    await until(lambda: backend(store, "a")["state"] == "ready", what="ready again")


async def test_a_frozen_engine_is_down_within_five_seconds_at_the_usual_pace(
    write_config, start_sidecar, store, engines
):
    engine = engines()
    usual = {"interval": "500ms", "timeout": "2s"}
    await start_sidecar(write_config("one", backends=[{"id": "a", "url": engine.url}], telemetry=usual))
    await until(lambda: backend(store, "a").get("state") == "ready", what="ready")
    engine.running = 2
    await asyncio.sleep(0.6)
    engine.frozen = True
    took = await until(lambda: backend(store, "a")["state"] == "down", what="down")
    assert took < 5
    assert backend(store, "a")["progress_age_ms"] > 2000


async def test_load_past_the_gateways_is_told_in_whole_requests(write_config, start_sidecar, store, engines):
    engine = engines()
    engine.running, engine.waiting = 5, 2
    await start_sidecar(write_config("one", backends=[{"id": "a", "url": engine.url}]))
    put_lease(store, a=3)
    await until(
        lambda: backend(store, "a").get("foreign", {}).get("requests") == 4, what="4 foreign requests"
    )
    put_lease(store, a=7)
    await until(lambda: backend(store, "a")["foreign"]["requests"] == 0, what="none")


@pytest.mark.parametrize("hours", [-24, -1, 1, 24])
async def test_a_gateway_whose_clock_is_wrong_counts_as_long_as_its_lease_lives(
    write_config, start_sidecar, store, engines, hours
):
    sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engines().url}]))
    put_lease(store, a=3)
    store.zadd(names.GATEWAYS, {"g1": int((time.time() + hours * 3600) * 1000)})
    await until(lambda: sidecar.plane.gateways.in_flight("a") == 3, what="the lease")
    store.pexpire(names.GATEWAY + "g1", 50)
    await until(lambda: sidecar.plane.gateways.in_flight("a") == 0, what="its end")


async def test_a_dead_gateways_load_is_gone_with_its_lease(write_config, start_sidecar, store, engines):
    sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engines().url}]))
    put_lease(store, a=3)
    await until(lambda: sidecar.plane.gateways.in_flight("a") == 3, what="the lease")
    (gateway,) = (await sidecar.http.get("/api/gateways")).json()
    assert (gateway["id"], gateway["in_flight"]) == ("g1", {"a": 3})
    store.pexpire(names.GATEWAY + "g1", 50)
    await until(lambda: sidecar.plane.gateways.in_flight("a") == 0, what="its end")


async def test_keys_of_backends_are_in_a_file_and_never_in_redis(write_config, start_sidecar, store, engines):
    path = write_config("one", backends=[{"id": "a", "url": engines().url, "api_key_file": "a.key"}])
    (path.parent / "a.key").write_text("sesame-open")
    await start_sidecar(path)
    await until(lambda: store.get(names.STATS), what="stats")
    keys = Paths.under(path.parent / "var").backend_keys
    assert json.loads(keys.read_text()) == {"a.key": "sesame-open"}
    assert keys.stat().st_mode & 0o777 == 0o600
    everything = "".join(str(store.get(key)) for key in store.keys("tw:*") if store.type(key) == "string")
    assert "sesame" not in everything
    assert (backend(store, "a")["credential_group"], backend(store, "a")["wants_key"]) == ("a", "a.key")


async def test_a_host_name_is_published_as_its_address(write_config, start_sidecar, store, engines):
    url = engines().url.replace("127.0.0.1", "localhost")
    await start_sidecar(write_config("one", backends=[{"id": "a", "url": url}]))
    await until(lambda: backend(store, "a").get("state") == "ready", what="ready")
    assert backend(store, "a")["host"] in {"127.0.0.1", "::1"}
    assert backend(store, "a")["host_header"].startswith("localhost:")
