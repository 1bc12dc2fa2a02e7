"""What a backend is asked, and what its answers mean, against a small engine over real HTTP."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sidecar.telemetry import watch as watch_module
from sidecar.telemetry.health import Look
from sidecar.telemetry.http import Origin
from sidecar.telemetry.watch import Watch
from tokenweir.config.models import BackendConfig


def watch_of(engine, fetcher, api_key=None, **members) -> Watch:
    config = BackendConfig(url=f"http://127.0.0.1:{engine.port}", **members)
    origin = Origin(f"http://127.0.0.1:{engine.port}", "engine.example", api_key=api_key)
    return Watch(config, lambda: origin, fetcher, 500, lambda *_: None)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """This process cannot open anything."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_one = os.dup(0)
    os.close(next_one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_the_first_look_learns_engine_models_and_load(engine, fetcher):
    watch = watch_of(engine, fetcher)
    assert await watch.look() == (Look.OK, "")
    record = watch.record
    assert (record.engine_kind, record.models.names, record.models.context) == ("vllm", ("m",), 4096)
    assert (record.engine.running, record.engine.capacity) == (7, 442_880)


async def test_a_usual_look_asks_for_the_metrics_alone(engine, fetcher):
    watch = watch_of(engine, fetcher)
    await watch.look()
    engine.asked.clear()
    await watch.look()
    assert engine.asked == {"/metrics": 1}


async def test_host_and_api_key_are_sent(engine, fetcher):
    await watch_of(engine, fetcher, api_key="sesame").look()
    assert (engine.host, engine.authorization) == ("engine.example", "Bearer sesame")


async def test_loading_is_told_apart_from_failing(engine, fetcher):
    engine.answers["/health"] = (503, '{"error":{"message":"Loading model"}}')
    watch = watch_of(engine, fetcher)
    look, text = await watch.look()
    assert look is Look.LOADING
    assert "503" in text
    assert watch.record.failures == 0


async def test_a_hung_engine_is_late(engine, fetcher):
    watch = watch_of(engine, fetcher)
    await watch.look()
    engine.answers["/metrics"] = None
    look, text = await watch.look()
    assert look is Look.LATE
    assert "300 ms" in text
    assert watch.record.failures == 1


async def test_a_closed_port_is_refused_with_the_reason_in_words(engine, fetcher):
    watch = Watch(
        BackendConfig(url="http://127.0.0.1:9"),
        lambda: Origin("http://127.0.0.1:9", "x"),
        fetcher,
        500,
        lambda *_: None,
    )
    look, text = await watch.look()
    assert look is Look.REFUSED
    assert "Connection refused" in text


async def test_a_name_that_does_not_resolve_is_refused(fetcher):
    watch = Watch(BackendConfig(url="http://nowhere:1"), lambda: None, fetcher, 500, lambda *_: None)
    assert await watch.look() == (Look.REFUSED, "the name nowhere does not resolve")


async def test_a_wanted_api_key_is_named(engine, fetcher):
    engine.answers["/v1/models"] = (401, "")
    look, text = await watch_of(engine, fetcher).look()
    assert look is Look.ERROR
    assert "api_key_file" in text


async def test_an_engine_that_lists_no_model_says_what_to_do(engine, fetcher):
    engine.answers["/v1/models"] = (200, '{"data": []}')
    look, text = await watch_of(engine, fetcher).look()
    assert look is Look.ERROR
    assert "`models`" in text
    assert (await watch_of(engine, fetcher, models="m").look())[0] is Look.OK


async def test_an_engine_without_metrics_serves_and_tells_no_load(engine, fetcher):
    engine.answers["/metrics"] = (404, "")
    watch = watch_of(engine, fetcher)
    assert (await watch.look())[0] is Look.OK
    assert watch.record.engine is None
    assert "404" in watch.record.notes["metrics"]
    engine.asked.clear()
    await watch.look()
    assert engine.asked == {"/health": 1}


async def test_an_unknown_engine_is_told_by_its_page(engine, fetcher):
    engine.answers["/v1/models"] = (200, '{"data": [{"id": "m", "owned_by": "me"}]}')
    engine.serve("/metrics", "sglang")
    watch = watch_of(engine, fetcher)
    await watch.look()
    assert (watch.record.engine_kind, watch.record.engine.running) == ("sglang", 162)


async def test_another_engine_in_the_same_place_is_recognised(engine, fetcher):
    watch = watch_of(engine, fetcher)
    await watch.look()
    engine.answers["/health"] = engine.answers["/metrics"] = (500, "")
    await watch.look()
    engine.answers["/health"] = (200, "")
    engine.answers["/v1/models"] = (
        200,
        '{"data": [{"id": "n", "owned_by": "llamacpp", "meta": {"n_ctx": 2048}}]}',
    )
    engine.answers["/props"] = (200, '{"total_slots": 4}')
    engine.serve("/metrics", "llamacpp")
    await watch.look()
    assert (watch.record.engine_kind, watch.record.models.names, watch.record.models.slots) == (
        "llamacpp",
        ("n",),
        4,
    )


async def test_models_are_read_again(engine, fetcher, monkeypatch):
    watch = watch_of(engine, fetcher)
    await watch.look()
    monkeypatch.setattr(watch_module, "MODELS_EVERY_MS", 0)
    engine.answers["/v1/models"] = (200, '{"data": [{"id": "m"}, {"id": "adapter"}]}')
    await watch.look()
    assert watch.record.models.names == ("m", "adapter")


async def test_a_page_whose_url_is_none_is_told_and_takes_nothing_out(engine, fetcher):
    watch = watch_of(engine, fetcher)
    watch.config = watch.config.model_copy(update={"metrics_url": "http://gpu:port/metrics"})
    assert (await watch.look())[0] is Look.OK
    assert "is no URL" in watch.record.notes["metrics"]


async def test_a_failing_backend_is_asked_less_often_and_a_returning_one_at_the_usual_pace(engine, fetcher):
    watch = watch_of(engine, fetcher)
    watch.record.failures = 2
    assert watch._delay_ms() < 600
    watch.record.failures = 5
    assert 1500 < watch._delay_ms() < 2500
    watch.record.failures = 500
    assert watch._delay_ms() < 500 * 8 * 1.2
    await watch.look()
    assert watch._delay_ms() < 600


async def test_an_endless_answer_is_not_read_to_its_end(engine, fetcher, monkeypatch):
    monkeypatch.setattr("sidecar.telemetry.http.BODY_LIMIT", 1000)
    engine.answers["/metrics"] = (200, "x" * 5000)
    look, text = await watch_of(engine, fetcher).look()
    assert look is Look.ERROR, "it answered: it is not dead"
    assert "longer than" in text


async def test_a_hurried_watch_looks_at_once(engine, fetcher):
    looks: asyncio.Queue[Look] = asyncio.Queue()
    config = BackendConfig(url=f"http://127.0.0.1:{engine.port}")
    origin = Origin(f"http://127.0.0.1:{engine.port}", "x")
    watch = Watch(config, lambda: origin, fetcher, 60_000, lambda _, look, __: looks.put_nowait(look))
    task = asyncio.create_task(watch.run())
    assert await asyncio.wait_for(looks.get(), 20) is Look.OK
    await asyncio.sleep(0)
    watch.hurry()
    assert await asyncio.wait_for(looks.get(), 20) is Look.OK
    task.cancel()


async def test_an_engine_whose_counters_move_is_not_asked_whether_it_is_well(engine, fetcher, monkeypatch):
    monkeypatch.setattr(watch_module, "HEALTH_EVERY_MS", 0)
    watch = watch_of(engine, fetcher)
    await watch.look()
    await watch.look()
    engine.asked.clear()
    status, page = engine.answers["/metrics"]
    engine.answers["/metrics"] = (status, page.replace("2.3456e+04", "2.3457e+04"))
    await watch.look()
    assert engine.asked == {"/metrics": 1, "/health": 1}
    await watch.look()
    assert engine.asked == {"/metrics": 2, "/health": 1}
    await watch.look()
    assert engine.asked == {"/metrics": 3, "/health": 2}


async def test_without_a_descriptor_nothing_is_known_of_the_engine(engine, fetcher):
    watch = watch_of(engine, fetcher)
    with no_descriptor_left():
        look, text = await watch.look()
    assert look is Look.BLIND
    assert os.strerror(errno.EMFILE) in text
    assert (watch.record.failures, fetcher.traffic.blind) == (0, 1)
    assert await watch.look() == (Look.OK, "")


async def test_a_look_that_was_not_made_is_told_to_nobody(engine, fetcher):
    seen = asyncio.Event()
    told: list[Look] = []

    def note(_: Watch, look: Look, __: str) -> None:
        told.append(look)
        seen.set()

    origin = Origin(f"http://127.0.0.1:{engine.port}", "x")
    watch = Watch(BackendConfig(url=origin.base), lambda: origin, fetcher, 10, note)
    with no_descriptor_left():
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(0.2)
        assert fetcher.traffic.blind
        assert told == []
    await seen.wait()
    task.cancel()
    assert set(told) == {Look.OK}


@pytest.mark.parametrize("number", [errno.ENETUNREACH, errno.EHOSTUNREACH])
async def test_where_there_is_no_way_to_the_host_its_engine_did_not_refuse(
    engine, fetcher, monkeypatch, number
):
    async def no_way(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", no_way)
    look, text = await watch_of(engine, fetcher).look()
    assert look is Look.LATE
    assert os.strerror(number) in text


async def test_a_page_that_is_compressed_unasked_is_no_answer_and_is_not_unpacked(engine, fetcher):
    engine.headers["Content-Encoding"] = "gzip"
    look, text = await watch_of(engine, fetcher).look()
    assert look is Look.ERROR
    assert "compressed ('gzip')" in text
