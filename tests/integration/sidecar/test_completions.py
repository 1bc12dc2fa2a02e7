"""The completion records: each is counted once, none is forgotten, bad ones harm nobody."""

from __future__ import annotations

import asyncio
import json
import signal
import time

import pytest

from sidecar.completions import CONSUMER
from tests.integration.sidecar.conftest import until
from tokenweir.contract import names


def record(number=0, **members):
    values = {
        "id": f"r{number}",
        "gateway": "g1",
        "time_ms": int(time.time() * 1000),
        "model": "m",
        "backend": "a",
        "kind": "chat",
        "output": 100,
        "output_source": "usage",
        "prompt": 250,
        "prompt_bytes": 1000,
        "events": 80,
        "finish": "stop",
        "outcome": "ok",
    }
    return values | members


def send(store, records, source="g1:1:1", first=0):
    fields = {names.COMPLETIONS_BATCH: json.dumps(records), names.COMPLETIONS_SOURCE: source}
    fields[names.COMPLETIONS_FIRST] = first
    return store.xadd(names.COMPLETIONS, fields, maxlen=names.COMPLETIONS_MOST)


def stats(store, model="m"):
    text = store.get(names.STATS)
    return (json.loads(text) if text else {}).get("models", {}).get(model, {})


@pytest.fixture
def config(write_config, engines):
    return write_config("one", backends=[{"id": "a", "url": engines().url}])


async def test_running_figures_come_from_the_records(config, start_sidecar, store):
    sidecar = await start_sidecar(config)
    for batch in range(10):
        send(store, [record(output=100 + n) for n in range(20)], first=20 * batch)
    await until(lambda: stats(store).get("count") == 200, what="200 records")
    found = stats(store)
    assert found["mean"] == pytest.approx(109.5, rel=0.02)
    assert found["tokens_per_byte"] == pytest.approx(0.25)
    assert found["tokens_per_event"] == pytest.approx(109.5 / 80, rel=0.01)
    shown = (await sidecar.http.get("/api/stats")).json()
    assert (shown["records"], shown["lost"], shown["missing"], shown["repeated"]) == (200, 0, 0, 0)
    assert store.xpending(names.COMPLETIONS, names.COMPLETIONS_GROUP)["pending"] == 0


async def test_bad_records_are_refused_counted_and_harm_nobody(config, start_sidecar, store):
    sidecar = await start_sidecar(config)
    bad = [
        record(output=-5),
        record(backend="zz"),
        record(output=1e14),
        {"id": "x"},
        "text",
    ]
    send(store, [record(), *bad, record()])
    store.xadd(names.COMPLETIONS, {names.COMPLETIONS_BATCH: '[{"output": NaN, "id": "n"}]'})
    store.xadd(names.COMPLETIONS, {names.COMPLETIONS_BATCH: "{broken"})
    store.xadd(names.COMPLETIONS, {"something": "else"})
    send(store, [record()], first=7)
    await until(lambda: stats(store).get("count") == 3, what="the good ones")
    shown = (await sidecar.http.get("/api/stats")).json()
    assert shown["poisoned"] == {
        "invalid": 4,
        "unknown_backend": 1,
        "absurd_tokens": 1,
        "batch_not_json": 2,
    }
    assert shown["lost"] == 0
    assert stats(store)["mean"] == pytest.approx(100)


async def test_a_batch_sent_twice_counts_once(config, start_sidecar, store):
    sidecar = await start_sidecar(config)
    for _ in range(3):
        send(store, [record(n) for n in range(10)])
    send(store, [record(10)], first=10)
    await until(lambda: stats(store).get("count") == 11, what="11 records")
    assert (await sidecar.http.get("/api/stats")).json()["repeated"] == 20


async def test_records_trimmed_before_they_were_read_are_counted_as_lost(
    config, start_sidecar, store, monkeypatch
):
    monkeypatch.setattr("sidecar.learning.sources.GRACE_MS", 500)
    sidecar = await start_sidecar(config)
    send(store, [record()])
    await until(lambda: stats(store).get("count") == 1, what="the first")
    with store.pipeline(transaction=True) as together:
        send(together, [record(n) for n in range(5)], first=1)
        together.xtrim(names.COMPLETIONS, maxlen=0, approximate=False)
        together.execute()
    send(store, [record()], first=6)
    await until(lambda: stats(store).get("count") == 2, what="the one after")
    await until(lambda: sidecar.plane.completions.lost == 5, what="5 lost")


async def test_a_restart_forgets_nothing(config, start_sidecar, store):
    first = await start_sidecar(config)
    send(store, [record(n) for n in range(50)])
    await until(lambda: stats(store).get("count") == 50, what="50 records")
    await first.plane.stop()
    send(store, [record(n) for n in range(50)], first=50)
    second = await start_sidecar(config)
    await until(lambda: stats(store).get("count") == 100, what="100 records")
    assert second.plane.completions.lost == 0


async def test_an_emptied_redis_and_a_restart_leave_the_figures_of_the_disk(config, start_sidecar, store):
    first = await start_sidecar(config)
    send(store, [record(n) for n in range(50)], first=1000)
    await until(lambda: stats(store).get("count") == 50, what="50 records")
    await first.plane.stop()
    store.flushall()
    second = await start_sidecar(config)
    await until(lambda: stats(store).get("count") == 50, what="the figures again")
    send(store, [record()], first=1050)
    await until(lambda: stats(store).get("count") == 51, what="one more")
    assert second.plane.completions.lost == 0


async def test_redis_emptied_while_it_runs_costs_no_figure(config, start_sidecar, store):
    await start_sidecar(config)
    send(store, [record(n) for n in range(10)])
    await until(lambda: stats(store).get("count") == 10, what="10 records")
    store.flushall()
    send(store, [record(n) for n in range(10)], first=10)
    await until(lambda: stats(store).get("count") == 20, what="20 records")


async def test_an_outage_of_redis_loses_and_repeats_nothing(config, start_sidecar, store, redis_server):
    sidecar = await start_sidecar(config)
    send(store, [record(n) for n in range(10)])
    await until(lambda: sidecar.plane.completions.records == 10, what="10 records")
    redis_server.freeze()
    await until(lambda: sidecar.plane.redis.error, what="the outage")
    redis_server.thaw()
    send(store, [record(n) for n in range(10)], first=10)
    await until(lambda: stats(store).get("count") == 20, what="20 records")
    assert sidecar.plane.completions.sources.repeated == 0


async def test_what_a_sleeping_former_leader_was_handed_is_counted_by_the_present_one(
    config, start_sidecar, store
):
    await start_sidecar(config)
    send(store, [record()])
    await until(lambda: stats(store).get("count") == 1, what="the first")
    send(store, [record(n) for n in range(5)], first=1)
    store.xreadgroup(names.COMPLETIONS_GROUP, CONSUMER, {names.COMPLETIONS: ">"})
    send(store, [record()], first=6)
    await until(lambda: stats(store).get("count") == 7, what="7 records")


async def test_a_killed_sidecar_counts_every_record_once(
    write_config, start_process, start_sidecar, store, engines
):
    url = engines().url
    leader = start_process(write_config("one", backends=[{"id": "a", "url": url}]))
    await until(leader.leads, 60, "a leader")
    follower = await start_sidecar(write_config("two", backends=[{"id": "a", "url": url}]))
    await until(lambda: follower.plane.leader.holder, what="a follower")
    for batch in range(60):
        send(store, [record(n) for n in range(10)], first=10 * batch)
        await asyncio.sleep(0.02)
        if batch == 40:
            leader.signal(signal.SIGKILL)
    await until(lambda: stats(store).get("count") == 600, what="600 records")
    await asyncio.sleep(0.5)
    assert stats(store)["count"] == 600
    shown = (await follower.http.get("/api/stats")).json()
    assert (shown["lost"], shown["missing"], shown["repeated"]) == (0, 0, 0)


async def test_a_request_that_ends_well_proves_that_its_engine_lives(
    write_config, start_sidecar, store, engines
):
    engine = engines()
    slow = {"interval": "100ms", "timeout": "200ms"}
    sidecar = await start_sidecar(
        write_config("one", backends=[{"id": "a", "url": engine.url}], telemetry=slow)
    )
    await until(lambda: sidecar.plane.fleet.members["a"].state.value == "ready", what="ready")
    engine.frozen = True
    for first in range(8):
        send(store, [record()], first=first)
        await until(lambda n=first: sidecar.plane.completions.records == n + 1, what="the record")
        assert sidecar.plane.fleet.members["a"].state.value == "ready"
    await until(lambda: sidecar.plane.fleet.members["a"].state.value == "down", what="down in the end")


async def test_a_flood_is_read_in_time(config, start_sidecar, store):
    sidecar = await start_sidecar(config)
    for batch in range(100):
        send(store, [record(n) for n in range(100)], first=100 * batch)
    began = time.process_time()
    await until(lambda: sidecar.plane.completions.records == 10_000, what="10,000 records")
    assert time.process_time() - began < 5


async def test_what_was_counted_is_deleted_so_that_the_stream_does_not_grow(config, start_sidecar, store):
    sidecar = await start_sidecar(config)
    for batch in range(50):
        send(store, [record(n) for n in range(20)], first=20 * batch)
    await until(lambda: sidecar.plane.completions.records == 1000, what="1,000 records")
    await until(lambda: store.xlen(names.COMPLETIONS) == 0, what="an empty stream")
    send(store, [record()], first=1000)
    await until(lambda: sidecar.plane.completions.records == 1001, what="one more record")
    assert sidecar.plane.completions.lost == 0
