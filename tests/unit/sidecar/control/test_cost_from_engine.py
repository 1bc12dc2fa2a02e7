"""The cost fit on what an emulated engine's own metrics tell: prompts on engines that are nearly empty,
prompts that the cache has, an engine that was slow and has no work any more."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from itertools import count

import pytest

from emulator.clock import EngineClock
from emulator.engine import Engine, Limits, Request
from emulator.settings import Settings
from emulator.vllm_metrics import VllmMetrics
from sidecar.control.cost import CostEstimate
from sidecar.control.hardware import Hardware
from sidecar.telemetry import vllm
from sidecar.telemetry.exposition import Page
from sidecar.telemetry.readings import Record
from tokenweir import facts

LOOK_MS = 500.0
CAPACITY = 400_000
TRUE = facts.coefficients("A100-80G", "llama-3-8b")


@dataclass
class Tag:
    """What the metrics ask of a request."""

    finish_reason: str = "stop"


class Server:
    """An emulated A100 and the sidecar's look at it."""

    def __init__(self, table: str = "A100-80G") -> None:
        self.limits = Limits(prefix_caching=True)
        self.engine = Engine(facts.step_time("A100-80G", "llama-3-8b"), CAPACITY, limits=self.limits)
        self.metrics = VllmMetrics(self.engine, EngineClock(lambda: 0.0), Settings(capacity=CAPACITY))
        self.estimate = CostEstimate()
        self.known = Hardware(table, "llama-3-8b", "fp16", 1)
        self.estimate.of(self.known)
        self.now = 0.0

    def run(self, seconds: float, every_ms: float, cached: float = 0.0, seed: int = 1) -> None:
        """Requests at random, one each `every_ms`; `cached`: the share of a prompt that another one had."""
        source, end = random.Random(seed), self.now + 1000 * seconds
        arrivals, at, names = [], self.now, count()
        while every_ms and (at := at + source.expovariate(1 / every_ms)) < end:
            prompt = source.randint(1000, 3000)
            blocks = prompt // self.limits.hash_tokens
            common = int(cached * blocks)
            hashes = [f"common-{k}" for k in range(common)]
            hashes += [f"own-{next(names)}" for _ in range(blocks - common)]
            request = Request(prompt, source.randint(40, 160), hashes, Tag())
            heapq.heappush(arrivals, (at, next(names), request))
        look = self.now + LOOK_MS
        while look <= end:
            while arrivals and arrivals[0][0] <= look:
                at, _, request = heapq.heappop(arrivals)
                self.advance(at)
                self.engine.submit(request, at)
            self.advance(look)
            page = Page(self.metrics.page().encode())
            record = Record(engine=vllm.read(page, look))
            self.estimate.observe(record, CAPACITY, look)
            self.now, look = look, look + LOOK_MS

    def slow(self, factor: float) -> None:
        """Let it run so many times slower than an A100."""
        self.engine.pace.slowdown = factor

    def advance(self, at: float) -> None:
        """As the server does: step by step."""
        while (step := self.engine.next_step()) <= at:
            self.engine.advance(step)
            self.take()
        self.engine.advance(at)
        self.take()

    def take(self) -> None:
        self.metrics.on_tick()
        for event in self.engine.events():
            self.metrics.on_event(event)

    @property
    def cost(self):
        return self.estimate.of(self.known, self.now)[0]


@pytest.mark.parametrize("table", ["H100", "L4"])
@pytest.mark.parametrize("cached", [0.0, 0.8])
@pytest.mark.parametrize("every_ms", [4000.0, 1000.0, 250.0], ids=["nearly empty", "quiet", "busy"])
def test_what_prompts_cost_is_found_whatever_the_load_and_the_cache(table, cached, every_ms):
    server = Server(table)
    server.run(150, every_ms, cached)
    assert server.cost.prefill == pytest.approx(TRUE.prefill, rel=0.25)
    assert server.cost.base == pytest.approx(TRUE.base, rel=0.15)


def test_a_slow_engine_without_work_is_taken_to_be_usual_again_after_a_while():
    server = Server()
    server.run(120, 250.0)
    usual = server.cost.base
    server.slow(3.0)
    server.run(60, 1000.0)
    server.run(15, 0)
    slow = server.cost.base
    assert slow == pytest.approx(3 * usual, rel=0.15)
    server.run(10, 0)
    assert server.cost.base == pytest.approx(slow)
    server.run(300, 0)
    assert server.cost.base == pytest.approx(usual, rel=0.2)
    assert "when it last had work" in server.estimate.of(server.known, server.now)[1]


def test_when_it_is_tried_again_and_still_slow_that_is_known_at_once():
    server = Server()
    server.run(120, 250.0)
    usual = server.cost.base
    server.slow(3.0)
    server.run(60, 1000.0)
    server.run(300, 0)
    server.run(5, 500.0)
    assert server.cost.base > 2.4 * usual


def test_when_it_is_tried_again_and_well_that_is_known_soon():
    server = Server()
    server.run(120, 250.0)
    usual = server.cost.base
    server.slow(3.0)
    server.run(60, 1000.0)
    server.slow(1.0)
    server.run(300, 0)
    server.run(15, 500.0)
    assert server.cost.base == pytest.approx(usual, rel=0.2)


def test_a_gpu_that_says_it_is_throttled_stays_slow_without_work():
    server = Server()
    server.run(60, 250.0)
    server.slow(3.0)
    server.run(60, 1000.0)
    server.run(15, 0)
    slow = server.cost.base
    server.run(300, 0)
    assert server.estimate.of(server.known, server.now, throttled=True)[0].base == pytest.approx(slow)


def test_an_engine_that_has_always_been_slow_stays_so_without_work():
    server = Server("H100")
    server.run(900, 2000.0)
    before = server.cost.base
    server.run(600, 0)
    assert server.cost.base > 0.65 * before
