"""The set of watches follows the fleet: engines, hosts with cards, containers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sidecar.telemetry.collector import Collector
from sidecar.telemetry.http import Origin
from tokenweir.config.models import BackendConfig, TelemetryConfig


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector(TelemetryConfig(interval="50ms"), lambda *_: None)
    await made.open()
    yield made
    await made.close()


def wanted(engine, *members):
    """Backends on one engine, with these members."""
    found = {}
    for number, extra in enumerate(members):
        config = BackendConfig(url=f"http://127.0.0.1:{engine.port}", id=f"b{number}", **extra)
        found[config.id] = (config, lambda: Origin(f"http://127.0.0.1:{engine.port}", "x"))
    return found


async def until(holds):
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - what is awaited happens in the watches
            await asyncio.sleep(0.01)


async def test_backends_of_one_host_share_the_looks_at_its_exporter(engine, collector):
    engine.serve("/gpu", "dcgm_pods")
    url = f"http://127.0.0.1:{engine.port}/gpu"
    collector.set_backends(
        wanted(
            engine, {"dcgm_url": url, "cards": [0, 1]}, {"dcgm_url": url, "card_labels": {"pod": "vllm-b-0"}}
        )
    )
    assert list(collector.card_watches) == [url]
    records = [watch.record for watch in collector.watches.values()]
    await until(lambda: all(record.card is not None for record in records))
    assert [record.card.temperature for record in records] == [53, 88]


async def test_a_change_of_cards_does_not_disturb_the_look_at_the_engine(engine, collector):
    engine.serve("/gpu", "dcgm_pods")
    url = f"http://127.0.0.1:{engine.port}/gpu"
    collector.set_backends(wanted(engine, {"dcgm_url": url, "cards": [0]}))
    watch = collector.watches["b0"]
    await until(lambda: watch.record.card is not None and watch.record.engine is not None)
    collector.set_backends(wanted(engine, {"dcgm_url": url, "cards": [2]}))
    assert collector.watches["b0"] is watch
    await until(lambda: watch.record.card.temperature == 88)
    collector.set_backends(wanted(engine, {}))
    assert collector.watches["b0"] is watch
    assert watch.record.card is None
    assert not collector.card_watches


async def test_a_container_that_began_or_ended_has_its_engine_looked_at(engine, collector):
    collector.set_backends(wanted(engine, {}))
    watch = collector.watches["b0"]
    watch.interval_ms = 60_000
    await until(lambda: watch.record.engine is not None)
    engine.asked.clear()
    await asyncio.sleep(0.1)
    engine.asked.clear()
    collector._container_changed("b0")
    collector._container_changed("unknown")
    await until(lambda: engine.asked["/metrics"] > 0)


async def test_a_runtime_that_is_away_is_noted_and_the_engine_watched_on(engine, collector):
    actuator = {"docker": {"container": "vllm", "host": "unix:///no/docker.sock"}}
    collector.set_backends(wanted(engine, {"actuator": actuator}))
    record = collector.watches["b0"].record
    await until(lambda: "container" in record.notes and record.engine is not None)
    assert "does not answer" in record.notes["container"]
    collector.set_backends(wanted(engine, {}))
    assert "container" not in record.notes


async def test_what_it_costs_is_measured(engine, collector, monkeypatch):
    collector.set_backends(wanted(engine, {}))
    await until(lambda: collector.fetcher.traffic.requests > 5)
    cost = collector.cost
    monkeypatch.setattr(cost, "_at", cost._at - 10_000)
    assert cost.looks_per_second > 0
    assert cost.bytes_per_tick == pytest.approx(cost._shares[2] * 0.05)
    assert 0 < cost.cpu_share < 2
    first = cost.cpu_share
    assert cost.cpu_share == first
