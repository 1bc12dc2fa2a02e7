"""Whatever an engine tells, decisions are made and published for the whole fleet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from sidecar.telemetry import engines
from sidecar.telemetry.exposition import Page
from sidecar.telemetry.health import Look
from sidecar.telemetry.plausible import plausible
from sidecar.telemetry.readings import EngineReading, Total
from tests.unit.sidecar.control.scene import fleet
from tokenweir.contract.records import Policy, Snapshot

PAGES = Path(__file__).parent / "pages"
NAMES = ("vllm", "vllm_old", "vllm_data_parallel", "sglang", "tgi", "trtllm", "triton", "llamacpp", "ollama")
NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
STRANGE = st.sampled_from(
    [
        b"-1",
        b"-1e300",
        b"1e300",
        b"1e308",
        b"NaN",
        b"+Inf",
        b"-Inf",
        b"0",
        b"0.5",
        b"99999999999999999999999",
        b"x",
        b"",
    ]
)


def strange_page(body: bytes, numbers: list[bytes], every: int) -> bytes:
    """The page with a strange number in place of every so many."""
    seen = -1

    def swap(found: re.Match[bytes]) -> bytes:
        nonlocal seen
        seen += 1
        return numbers[seen // every % len(numbers)] if seen % every == 0 else found[0]

    return NUMBER.sub(swap, body)


def read(body: bytes, at: float) -> EngineReading | None:
    """As a watch reads it."""
    kind = engines.by_page(body) or "ollama"
    try:
        reading = engines.READERS[kind](Page(body, {}), at)
    except (ValueError, ArithmeticError):
        return None
    return None if reading is None else plausible(reading)[0]


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    numbers=st.lists(STRANGE, min_size=2, max_size=6),
    every=st.integers(1, 7),
    offset=st.integers(0, 3),
)
def test_no_page_of_an_engine_keeps_the_fleet_from_being_published(name, numbers, every, offset):
    stage = fleet("a", "b", "c")
    body = (PAGES / f"{name}.txt").read_bytes()
    pages = [strange_page(body, numbers[k % 2 :], every + k % 2 * offset) for k in range(4)]
    with capture_logs() as lines:
        for page in pages:
            stage.tick()
            reading = read(page, stage.now + 1)
            if reading is not None:
                stage["a"].record.engine = reading
            stage.fleet.observe("a", Look.OK, "", stage.now + 1)
            stage.loop.step(stage.config, True, stage.now + 2)
            backends = stage.fleet.decide(stage.now + 2)
            told = Snapshot(
                fence=1,
                sequence=1,
                time_ms=1,
                policy=Policy.PREDICTIVE,
                models=stage.loop.published(),
                backends=backends,
            )
            Snapshot.read(told.dump())
    assert [line for line in lines if line["event"] == "backend_figures_refused"] == []


def test_figures_that_cannot_be_are_left_out_and_named():
    reading = EngineReading(
        at=1.0,
        source="vllm",
        running=-5,
        waiting=3,
        capacity=10**13,
        output_tokens=7,
        ttft=Total(1e300, 2),
    )
    found, problem = plausible(reading)
    assert (found.running, found.waiting, found.capacity, found.output_tokens, found.ttft) == (
        None,
        3,
        None,
        7,
        None,
    )
    assert problem == "figures that cannot be are left out: running -5, capacity 1e+13, ttft 1e+300 in 2"


def test_a_usual_reading_stays_as_it_is():
    reading = EngineReading(at=1.0, source="vllm", running=5, kv_use=1.0, ttft=Total(10, 2))
    assert plausible(reading) == (reading, "")


@pytest.mark.parametrize(
    "line",
    ["vllm:num_requests_running -1.0", 'vllm:cache_config_info{block_size="16",num_gpu_blocks="²"} 1.0'],
)
async def test_a_strange_page_is_told_and_takes_nothing_out(engine, fetcher, line):
    from tests.unit.sidecar.telemetry.test_watch import watch_of

    rest = "vllm:num_requests_running 1.0\n" if "running" not in line else ""
    engine.answers["/metrics"] = (200, f"{rest}{line}\n")
    watch = watch_of(engine, fetcher)
    assert await watch.look() == (Look.OK, "")
    assert watch.record.notes["metrics"]
