"""One look at a host's cards serves every backend on it, each with its own."""

from __future__ import annotations

import pytest

from sidecar.telemetry.card_sources import DriverSource, ExporterSource
from sidecar.telemetry.card_watch import NOTE, CardWatch, Share
from sidecar.telemetry.readings import Record


@pytest.fixture
def seen():
    return []


@pytest.fixture
def watch(engine, fetcher, seen):
    """A host with four cards: two of `a`, two of `b`, by their pods."""
    engine.serve("/metrics", "dcgm_pods")
    made = CardWatch(
        "http://gpu-b:9400/metrics",
        ExporterSource(f"http://127.0.0.1:{engine.port}/metrics", fetcher),
        500,
        lambda backend, event: seen.append((backend, event.code)),
    )
    made.shares = {
        "a": Share(Record(), (), {"pod": "vllm-a-0"}),
        "b": Share(Record(), ("2", "3"), {}),
    }
    return made


async def test_each_backend_gets_the_cards_that_are_its_own(watch, engine):
    await watch.look()
    first, second = (watch.shares[name].record.card for name in "ab")
    assert (first.cards, first.power, first.temperature) == (2, 1011, 53)
    assert (second.cards, second.power, second.temperature) == (2, 1010.5, 88)
    assert first.source == "dcgm"
    assert engine.asked == {"/metrics": 1}


async def test_an_xid_error_is_told_to_the_backend_whose_card_it_is(watch, engine, seen):
    await watch.look()
    assert seen == []
    status, page = engine.answers["/metrics"]
    engine.answers["/metrics"] = (status, page.replace('xid="31"} 2', 'xid="31"} 3'))
    await watch.look()
    assert seen == [("b", 31)]
    (event,) = watch.shares["b"].record.xids
    assert (event.code, event.index) == (31, "3")
    assert not watch.shares["a"].record.xids


async def test_a_host_shared_without_saying_how_gives_no_figures_and_says_so(watch):
    watch.shares["c"] = Share(Record(), (), {})
    await watch.look()
    record = watch.shares["c"].record
    assert record.card is None
    assert "shared by a, b, c" in record.notes[NOTE]
    assert watch.shares["a"].record.card is not None


async def test_a_backend_alone_on_its_host_has_all_its_cards(watch):
    watch.shares = {"a": Share(Record(), (), {})}
    await watch.look()
    assert watch.shares["a"].record.card.cards == 4


async def test_a_card_that_is_not_there_is_named(watch):
    watch.shares["b"] = Share(Record(), ("9",), {})
    await watch.look()
    assert "no card '9'" in watch.shares["b"].record.notes[NOTE]


async def test_a_backend_whose_pod_moves_to_another_card_gets_that_cards_reading(watch, engine):
    await watch.look()
    await watch.look()
    status, page = engine.answers["/metrics"]
    engine.answers["/metrics"] = (status, page.replace("vllm-a-0", "x").replace("vllm-b-0", "vllm-a-0"))
    await watch.look()
    assert watch.shares["a"].record.card.power == 1010.5
    watch.shares = {**watch.shares, "b": Share(watch.shares["b"].record, ("0", "1"), {})}
    await watch.look()
    assert watch.shares["b"].record.card.power == 1011


async def test_an_exporter_that_goes_leaves_the_last_reading_with_its_age(watch, engine):
    await watch.look()
    reading = watch.shares["a"].record.card
    engine.answers["/metrics"] = (500, "")
    await watch.look()
    record = watch.shares["a"].record
    assert record.card is reading
    assert "answers 500" in record.notes[NOTE]
    assert watch.failures == 1
    engine.serve("/metrics", "dcgm_pods")
    await watch.look()
    assert NOTE not in record.notes
    assert watch.failures == 0


async def test_a_page_that_is_no_exporters_says_so(watch, engine):
    engine.answers["/metrics"] = (200, "# TYPE go_goroutines gauge\ngo_goroutines 9\n")
    await watch.look()
    assert "is it the DCGM exporter's" in watch.shares["a"].record.notes[NOTE]


async def test_no_credentials_go_to_an_exporter(watch, engine):
    await watch.look()
    assert engine.authorization is None


async def test_this_hosts_own_driver_is_a_source_too(driver, seen):
    source = DriverSource()
    watch = CardWatch("nvml", source, 500, lambda backend, event: seen.append((backend, event.code)))
    watch.shares = {"a": Share(Record(), ("GPU-aaaa",), {}), "b": Share(Record(), ("1",), {})}
    await watch.look()
    driver.events.append((1, 94))
    await watch.look()
    assert watch.shares["a"].record.card.source == "nvml"
    assert watch.shares["b"].record.card.name == "NVIDIA A100-SXM4-80GB"
    assert seen == [("b", 94)]
    watch.close()
    assert driver.users == 0
