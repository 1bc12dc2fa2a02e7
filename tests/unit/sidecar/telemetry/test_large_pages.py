"""Large pages are taken apart beside everything else, and less often."""

from __future__ import annotations

import threading

import pytest

from sidecar.telemetry.large_pages import LARGE, PageTime


async def test_a_usual_page_is_taken_apart_at_once() -> None:
    made = PageTime()
    assert await made.spend(LARGE, threading.get_ident) == threading.get_ident()
    assert made.rest_ms == 0


async def test_a_large_one_is_taken_apart_in_a_thread_and_its_source_rests() -> None:
    made = PageTime()
    assert await made.spend(LARGE + 1, threading.get_ident) != threading.get_ident()
    assert made.rest_ms > 0
    await made.spend(10, lambda: None)
    assert made.rest_ms == 0


async def test_what_cannot_be_taken_apart_is_told_and_costs_the_same_rest() -> None:
    made = PageTime()
    with pytest.raises(ValueError, match="no page"):
        await made.spend(LARGE + 1, _fail)
    assert made.rest_ms > 0


def _fail() -> None:
    raise ValueError("no page")


async def test_a_large_page_of_an_engine_is_read(engine, fetcher):
    from tests.unit.sidecar.telemetry.test_watch import watch_of

    page = engine.answers["/metrics"][1]
    engine.answers["/metrics"] = (200, page + "".join(f"other_{k} {k}\n" for k in range(20_000)))
    watch = watch_of(engine, fetcher)
    await watch.look()
    assert watch.record.engine.running == 7
    assert watch._page_time.rest_ms > 0
