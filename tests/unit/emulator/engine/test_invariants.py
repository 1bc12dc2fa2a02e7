"""What holds for any traffic, on any kind of engine, however it is driven."""

from math import isnan

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from emulator.engine import Engine, EventKind, Exhaustion, Limits, Request, State
from tests.unit.emulator.engine.engines import REAL

CAPACITY = 1_600
# Without the tracing that explains a failure: it makes each run many times slower.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)

arrivals = st.lists(
    st.tuples(
        st.floats(0, 400),  # time since the arrival before, ms
        st.integers(1, 700),  # prompt
        st.integers(0, 300),  # output
        st.integers(0, 3),  # which family of prefixes
        st.sampled_from([None, None, None, 5.0, 300.0]),  # the client leaves after that time, ms
    ),
    min_size=1,
    max_size=16,
)


class Driver:
    """Feeds an engine with arrivals and departures; between them it advances by `stride` ms, or to the next
    change."""

    def __init__(self, exhaustion: Exhaustion, stride: float | None) -> None:
        limits = Limits(max_num_seqs=6, max_num_batched_tokens=256)
        self.engine = Engine(REAL, CAPACITY, exhaustion, limits)
        self.stride, self.now = stride, 0.0
        self.log: list[tuple[int, str]] = []
        self.times: list[float] = []
        self.requests: list[Request] = []

    def advance(self, now: float) -> None:
        engine = self.engine
        while engine.alive and not engine.idle and self.now < now:
            at = engine.next_change() if self.stride is None else self.now + self.stride
            if at > now:
                break
            engine.advance(at)
            self.now = at
            self.check()
        engine.advance(now)
        self.now = now
        self.check()

    def check(self) -> None:
        engine = self.engine
        events = engine.events()
        self.log += [(event.request.number, event.kind.name) for event in events]
        self.times += [event.time for event in events]
        assert 0 <= engine.memory.free <= engine.memory.blocks
        held = sum(engine._held.tokens(request) for request in engine.running.values())
        shared = sum(len(request.shared) for request in engine.running.values())
        assert engine.memory.blocks - engine.memory.free >= (held - 16 * shared) // 16
        assert len(engine.running) <= 6

    def drive(self, traffic: list[tuple[float, int, int, int, float | None]]) -> None:
        now = 0.0
        timeline: list[tuple[float, int, Request]] = []
        for i, (gap, prompt, output, family, leaves) in enumerate(traffic):
            now += gap
            request = Request(
                prompt, min(output, CAPACITY - prompt), [(family, j) for j in range(prompt // 16)]
            )
            timeline.append((now, i, request))
            if leaves is not None:
                timeline.append((now + leaves, i, request))
        for at, _, request in sorted(timeline, key=lambda entry: entry[:2]):
            self.advance(at)
            if not self.engine.alive:
                self.engine.restart(at)
            if request in self.requests:
                self.engine.abort(request, at)
            else:
                try:
                    self.engine.submit(request, at)
                except RuntimeError:
                    self.engine.restart(at)
                    self.engine.submit(request, at)
                self.requests.append(request)
        self.advance(at + 1e6)


@settings(max_examples=100, deadline=None, phases=PHASES)
@given(arrivals, st.sampled_from(list(Exhaustion)))
def test_every_request_ends_once_and_memory_comes_back_to_nothing(
    traffic: list[tuple[float, int, int, int, float | None]], exhaustion: Exhaustion
) -> None:
    driver = Driver(exhaustion, stride=None)
    driver.drive(traffic)
    engine = driver.engine
    assert engine.idle or not engine.alive
    assert engine.memory.free == engine.memory.blocks
    assert all(references == 0 for references in engine.memory.cache.references.values())
    counters = engine.counters
    assert (
        counters.submitted == counters.finished + counters.failed + counters.aborted == len(driver.requests)
    )
    for request in driver.requests:
        assert request.state is State.DONE
        ends = [kind for number, kind in driver.log if number == request.number and kind != "PREEMPTED"]
        assert ends.count("FINISHED") + ends.count("FAILED") <= 1
        if "FINISHED" in ends:
            assert engine.generated(request) == request.output
        assert isnan(request.first_token) or request.queued < request.first_token <= request.finished
    assert driver.times == sorted(driver.times)


@settings(max_examples=50, deadline=None, phases=PHASES)
@given(arrivals, st.sampled_from(list(Exhaustion)), st.sampled_from([13.3, 90.0]))
def test_jumping_from_change_to_change_is_the_same_as_walking(
    traffic: list[tuple[float, int, int, int, float | None]], exhaustion: Exhaustion, stride: float
) -> None:
    jumping, walking = Driver(exhaustion, stride=None), Driver(exhaustion, stride=stride)
    jumping.drive(traffic)
    walking.drive(traffic)
    assert jumping.log == walking.log
    assert jumping.times == pytest.approx(walking.times)


def test_first_tokens_come_before_ends() -> None:
    assert EventKind.FIRST_TOKEN < EventKind.FINISHED
