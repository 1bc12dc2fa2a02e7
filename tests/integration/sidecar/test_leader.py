"""One sidecar publishes, whatever happens to it."""

from __future__ import annotations

import asyncio
import json
import signal
import time

import pytest
from structlog.testing import capture_logs

from tests.integration.sidecar.conftest import add_user, backend, quickest, snapshot, until
from tests.integration.sidecar.test_completions import record, send
from tokenweir.contract import names


@pytest.fixture
async def two(write_config, start_process, start_sidecar, store, engines):
    """(leader, a process of its own; follower, in this process)."""
    url = engines().url
    leader = start_process(write_config("one", backends=[{"id": "a", "url": url}]))
    await until(leader.leads, 60, "the first sidecar leading")
    follower = await start_sidecar(write_config("two", backends=[{"id": "a", "url": url}]))
    await until(lambda: follower.plane.leader.holder, what="the second sidecar following")
    return leader, follower


async def watch_fences(store, seconds):
    """(fence, sequence) of every snapshot seen for a while."""
    seen, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        found = snapshot(store)
        if found and (not seen or seen[-1] != (found["fence"], found["sequence"])):
            seen.append((found["fence"], found["sequence"]))
        await asyncio.sleep(0.003)
    return seen


async def test_a_killed_leader_is_followed_within_three_seconds_with_a_higher_fence(two, store):
    leader, follower = two
    before = snapshot(store)
    leader.signal(signal.SIGKILL)
    assert await until(lambda: snapshot(store)["fence"] > before["fence"], what="a higher fence") < 3
    after = snapshot(store)
    assert after["sequence"] > before["sequence"]
    assert after["backends"][0]["state"] == "ready"
    assert follower.plane.leader.leading


async def test_an_engine_that_serves_and_is_too_busy_for_looks_stays_in_service_under_the_next_leader(
    write_config, start_process, start_sidecar, store, engines
):
    engine = engines()
    members = {
        "backends": [{"id": "a", "url": engine.url}],
        "telemetry": {"interval": "100ms", "timeout": "200ms"},
    }
    leader = start_process(write_config("one", **members))
    await until(leader.leads, 60, "the first sidecar leading")
    follower = await start_sidecar(write_config("two", **members))
    await until(lambda: follower.plane.leader.holder, what="the second sidecar following")
    await until(lambda: backend(store, "a").get("state") == "ready", what="a ready")

    async def serve() -> None:
        number = 0
        while True:
            send(store, [record(number)], first=number)
            number += 1
            await asyncio.sleep(0.1)

    serving = asyncio.create_task(serve())
    engine.frozen = True
    await until(lambda: '"forgiven":["a"]' in str(store.get(names.CONTROL)), what="a forgiven")
    leader.signal(signal.SIGKILL)
    publisher = follower.plane.publisher
    await until(lambda: publisher.published >= 10, what="ten snapshots")
    serving.cancel()
    told = [json.loads(text)["backends"][0]["state"] for text in publisher.history]
    assert set(told) == {"ready"}


async def test_a_stopped_leader_that_wakes_publishes_nothing_more(two, store):
    leader, follower = two
    before = snapshot(store)["fence"]
    leader.signal(signal.SIGSTOP)
    assert await until(lambda: snapshot(store)["fence"] > before, what="a higher fence") < 3
    leader.signal(signal.SIGCONT)
    seen = await watch_fences(store, 2)
    assert {fence for fence, _ in seen} == {snapshot(store)["fence"]}
    assert [sequence for _, sequence in seen] == sorted({sequence for _, sequence in seen})
    assert len(seen) > 10
    assert (await asyncio.to_thread(leader.fleet))["leading"] is False
    assert follower.plane.leader.leading


async def test_a_leader_that_ends_cleanly_is_followed_at_once(two, store):
    leader, _ = two
    before = snapshot(store)["fence"]
    leader.signal(signal.SIGTERM)
    took = await until(lambda: snapshot(store)["fence"] > before, what="a higher fence")
    assert await asyncio.to_thread(leader.process.wait, 30) == 0
    assert "lease_given_up" in leader.log.read_text()
    assert took < 2


async def test_an_emptied_redis_is_filled_again_under_a_higher_fence(
    write_config, start_sidecar, store, engines
):
    await start_sidecar(write_config("one", backends=[engines().url], models=["m"]))
    await until(lambda: store.get(names.STATS), what="stats")
    before = snapshot(store)
    store.flushall()
    await until(lambda: snapshot(store).get("fence", 0) > before["fence"], what="a higher fence")
    await until(lambda: store.get(names.SETTINGS) and store.get(names.STATS), what="settings and stats")
    assert snapshot(store)["sequence"] > before["sequence"]


async def test_without_redis_it_goes_on_watching_and_publishes_when_redis_returns(
    write_config, start_sidecar, redis_server, store, engines
):
    engine = engines()
    sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engine.url}]))
    await until(lambda: backend(store, "a").get("state") == "ready", what="ready")
    redis_server.stop()
    await until(lambda: sidecar.plane.redis.error, what="Redis missed")
    assert (await sidecar.http.get("/readyz")).status_code == 503
    engine.kv_use = 0.77
    await until(lambda: sidecar.plane.fleet.members["a"].record.engine.kv_use == 0.77, what="a fresh reading")
    assert (await sidecar.http.get("/api/fleet")).json()["redis"]
    redis_server.start()
    add_user(redis_server.client())
    await until(lambda: backend(store, "a").get("memory") == 0.77, what="the snapshot again")
    await until(lambda: sidecar.plane.redis.error is None, what="an end of the outage")
    assert (await sidecar.http.get("/readyz")).status_code == 200


async def test_a_frozen_redis_delays_nothing_but_publication(
    write_config, start_sidecar, redis_server, store, engines
):
    sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engines().url}]))
    await until(lambda: backend(store, "a").get("state") == "ready", what="ready")
    redis_server.freeze()
    try:

        async def ask():
            began = time.monotonic()
            assert (await sidecar.http.post("/api/backends/a/drain")).status_code == 200
            assert (await sidecar.http.get("/healthz")).status_code == 200
            return time.monotonic() - began

        assert await quickest(ask, enough=0.5) < 0.5
        await asyncio.sleep(2.5)
    finally:
        redis_server.thaw()
    await until(lambda: backend(store, "a").get("state") == "draining", what="the drain in the snapshot")


async def test_a_full_redis_is_told_once_and_refilled_when_it_has_room_again(
    write_config, start_sidecar, store, engines
):
    sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engines().url}]))
    await until(lambda: backend(store, "a").get("state") == "ready", what="ready")
    before = snapshot(store)
    with capture_logs() as logs:
        store.config_set("maxmemory", 1)
        await until(lambda: sidecar.plane.redis.errors > 30, what="refused commands")
        assert (await sidecar.http.get("/readyz")).status_code == 503
        store.config_set("maxmemory", 0)
        await until(lambda: snapshot(store)["sequence"] > before["sequence"] + 1, what="snapshots")
        await until(lambda: sidecar.plane.redis.error is None, what="an end of the outage")
    told = [entry for entry in logs if entry["event"] in {"redis_away", "redis_back"}]
    assert len(told) == len({(entry["event"], entry.get("reason")) for entry in told})
    assert told[-1]["event"] == "redis_back"


async def test_documents_that_nest_too_deeply_stop_nobody(write_config, start_sidecar, store, engines):
    deep = "[" * 100_000
    for key in (names.SNAPSHOT, names.CONTROL, names.LEARNED, names.CHANGES, names.GATEWAY + "g1"):
        store.set(key, deep)
    store.zadd(names.GATEWAYS, {"g1": 1})
    with capture_logs() as logs:
        sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engines().url}]))
        await until(lambda: sidecar.plane.publisher.published, what="a snapshot")
        await until(lambda: backend(store, "a").get("state") == "ready", what="ready")
        await until(lambda: sidecar.plane.gateways.refused, what="the lease refused")
    assert not [entry for entry in logs if entry["event"].endswith("_failed")]


async def test_a_fence_never_falls_even_below_one_from_the_future(
    write_config, start_sidecar, store, engines
):
    store.set(names.FENCE, 9_000_000_000_000)
    await start_sidecar(write_config("one", backends=[engines().url]))
    await until(lambda: snapshot(store), what="a snapshot")
    assert snapshot(store)["fence"] == 9_000_000_000_001


async def test_however_rarely_backends_are_looked_at_the_lead_is_kept_and_snapshots_come(
    write_config, start_sidecar, store, engines
):
    rarely = {"interval": "5s", "timeout": "500ms"}
    path = write_config("one", backends=[{"id": "a", "url": engines().url}], telemetry=rarely)
    sidecar = await start_sidecar(path)
    await until(lambda: backend(store, "a").get("state") == "ready", what="ready")
    first = snapshot(store)
    took = await until(lambda: snapshot(store)["sequence"] >= first["sequence"] + 6, what="six snapshots")
    assert 2 < took < 4
    assert snapshot(store)["fence"] == first["fence"]
    assert sidecar.plane.leader.changes == 1


@pytest.mark.parametrize("key", [names.CONTROL, names.SNAPSHOT, names.SETTINGS, names.CHANGES])
async def test_a_key_that_holds_something_else_is_written_over(
    write_config, start_sidecar, store, engines, key
):
    store.rpush(key, "no text")
    sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engines().url}]))
    await until(lambda: sidecar.plane.publisher.published > 2, what="snapshots")
    if key == names.CHANGES:
        await sidecar.http.post("/api/backends/a/drain")
    await until(lambda: store.type(key) == "string", what="the key put right")
    await until(lambda: sidecar.plane.redis.error is None, what="an end of the outage")


async def test_one_that_follows_shows_the_alerts_and_restarts_of_the_leader(
    write_config, start_sidecar, store, engines
):
    first, second = engines(), engines()
    actuator = {"command": {"restart": ["false"]}}
    backends = [{"id": "a", "url": first.url, "actuator": actuator}, {"id": "b", "url": second.url}]
    leader = await start_sidecar(write_config("one", backends=backends))
    await until(lambda: leader.plane.publisher.published, what="the first sidecar leading")
    follower = await start_sidecar(write_config("two", backends=backends))
    await until(lambda: follower.plane.leader.holder == leader.plane.id, what="the second following")
    await until(lambda: backend(store, "a").get("state") == "ready", what="a ready")
    assert (await leader.http.post("/api/backends/a/restart")).status_code == 202

    async def told(sidecar) -> tuple[object, object]:
        alerts = (await sidecar.http.get("/api/alerts")).json()
        return [(one["kind"], one["subject"]) for one in alerts], (
            await sidecar.http.get("/api/control")
        ).json()["restarts"].keys()

    async def alike() -> bool:
        kinds, restarts = await told(follower)
        return kinds == [("restart_failed", "a")] and list(restarts) == ["a"]

    await until(alike, what="the leader's alert at the follower")
    await leader.http.post("/api/backends/a/return")

    async def over() -> bool:
        return await told(follower) == ([], {}.keys())

    await until(over, what="its end")


async def test_a_removed_backend_leaves_one_that_follows_too(write_config, start_sidecar, store, engines):
    backends = [{"id": name, "url": engines().url} for name in "ab"]
    leader = await start_sidecar(write_config("one", backends=backends))
    await until(lambda: leader.plane.publisher.published, what="the first sidecar leading")
    follower = await start_sidecar(write_config("two", backends=backends))
    await until(lambda: follower.plane.leader.holder == leader.plane.id, what="the second following")
    assert (await leader.http.delete("/api/backends/a?now=true")).status_code == 204
    await until(lambda: list(follower.plane.fleet.members) == ["b"], what="b alone")
