"""Fragmentation, context switch and prediction deviation: measured by what an engine tells, or not at all."""

from __future__ import annotations

import pytest

from sidecar.telemetry.indicators import ContextSwitch, Fragmentation, deviation
from sidecar.telemetry.readings import EngineReading, Total

INF = float("inf")


def sglang(held, reserved, running=4):
    return EngineReading(at=0, source="sglang", running=running, held_tokens=held, reserved_tokens=reserved)


def vllm(at, load, *, prompt, output, ended=(0, 0), reserved=None, aborted=0):
    return EngineReading(
        at=at,
        source="vllm",
        running=load,
        waiting=0,
        prompt_tokens=prompt,
        output_tokens=output,
        prompt_lengths=Total(ended[0], 1),
        output_lengths=Total(ended[1], 1),
        reserved_tokens=reserved,
        aborted=aborted,
    )


def fragmentation_of(*readings):
    measure = Fragmentation()
    for reading in readings:
        measure.observe(reading)
    return measure.now()


def test_fragmentation_is_the_share_of_what_is_handed_out_that_holds_nothing():
    found = fragmentation_of(sglang(900, 1000), sglang(800, 1000), sglang(875, 1000))
    assert found.value == 0.125
    assert not found.alert
    assert fragmentation_of(sglang(700, 1000)).alert


def test_sequences_that_share_blocks_are_no_fragmentation():
    assert fragmentation_of(sglang(1400, 1000)).value == 0


def test_a_few_blocks_are_not_measured():
    found = fragmentation_of(sglang(10, 64))
    assert (found.value, found.alert) == (None, False)
    assert found.text == "not measured: too little is held"


def test_an_engine_that_tells_neither_is_not_measured():
    found = fragmentation_of(EngineReading(at=0, source="llamacpp", running=1))
    assert found.value is None
    assert "does not tell" in found.text


def test_counters_tell_what_is_held_from_an_idle_moment_on():
    idle = vllm(0, 0, prompt=5000, output=2000, ended=(4900, 1900))
    busy = vllm(500, 4, prompt=5900, output=2100, ended=(4900, 1900), reserved=1250)
    assert fragmentation_of(idle, busy).value == pytest.approx(1 - 1000 / 1250)


def test_counters_without_an_idle_moment_tell_nothing():
    busy = vllm(0, 4, prompt=5900, output=2100, reserved=1250)
    found = fragmentation_of(busy, vllm(500, 4, prompt=5900, output=2200, reserved=1250))
    assert found.value is None
    assert "moment without requests" in found.text


def test_after_an_abort_the_next_idle_moment_is_waited_for():
    idle = vllm(0, 0, prompt=0, output=0)
    aborted = vllm(500, 4, prompt=900, output=100, reserved=1250, aborted=1)
    assert fragmentation_of(idle, aborted).value is None
    again = vllm(1000, 0, prompt=900, output=200, aborted=1)
    busy = vllm(1500, 4, prompt=1800, output=300, reserved=1250, aborted=1)
    assert fragmentation_of(idle, aborted, again, busy).value == pytest.approx(0.2)


def test_a_restarted_engine_begins_anew():
    idle = vllm(0, 0, prompt=5000, output=2000)
    restarted = vllm(500, 2, prompt=300, output=10, reserved=400)
    assert fragmentation_of(idle, restarted).value is None


def counting(at, preemptions):
    return EngineReading(
        at=at, source="vllm", running=2, preemptions=preemptions, inter_token=Total(1.0, 1.0)
    )


def buckets(small, middle, large, beyond=0):
    """Observations up to 25 ms, 50 ms, 100 ms and beyond, as a histogram accumulates them."""
    return {
        0.025: small,
        0.05: small + middle,
        0.1: small + middle + large,
        INF: small + middle + large + beyond,
    }


def test_the_longest_gaps_are_those_of_the_preempted():
    measure = ContextSwitch()
    measure.observe(counting(0, 10), buckets(1000, 5, 5))
    measure.observe(counting(5000, 13), buckets(9000, 15, 6, 1))
    found = measure.now()
    # One gap over 100 ms, one over 50 ms, one over 25 ms.
    assert found.value == pytest.approx((100 + 50 + 25) / 3)
    assert found.alert


def test_without_a_preemption_there_is_no_context_switch():
    measure = ContextSwitch()
    measure.observe(counting(0, 3), buckets(10, 0, 0))
    measure.observe(counting(5000, 3), buckets(90, 40, 3))
    found = measure.now()
    assert (found.value, found.alert) == (None, False)
    assert "no preemption in the last 5 s" in found.text


def test_an_engine_without_the_counter_is_not_measured():
    measure = ContextSwitch()
    reading = EngineReading(at=0, source="tgi", running=1)
    assert not measure.due(reading)
    assert "does not tell" in measure.now().text


def test_the_buckets_are_read_every_five_seconds():
    measure = ContextSwitch()
    assert measure.due(counting(0, 0))
    measure.observe(counting(0, 0), buckets(1, 0, 0))
    assert not measure.due(counting(4900, 0))
    assert measure.due(counting(5000, 0))


def test_a_minute_is_looked_back():
    measure = ContextSwitch()
    for at in range(0, 200_000, 5000):
        measure.observe(counting(at, 4 if at else 0), buckets(100 + at, 0, 0, 4 if at else 0))
    assert "no preemption in the last 60 s" in measure.now().text


def test_a_restarted_engine_counts_anew():
    measure = ContextSwitch()
    measure.observe(counting(0, 50), buckets(1000, 5, 5))
    measure.observe(counting(5000, 1), buckets(10, 0, 1))
    assert measure.now().value is None


def test_deviation_beyond_a_fifth_is_an_alert():
    found = deviation(0.3, 20)
    assert (found.value, found.limit, found.unit, found.alert) == (0.3, 0.20, "share", True)
    assert not deviation(0.1, 20).alert


def test_deviation_of_a_few_requests_is_chance_and_no_alert():
    found = deviation(0.9, 19)
    assert (found.value, found.alert) == (None, False)
    assert found.text == "not measured: the last whole minute had 19 answers, and 20 are wanted"


def test_deviation_of_no_requests_is_not_measured():
    found = deviation(None, 0)
    assert (found.value, found.alert) == (None, False)
    assert found.text.startswith("not measured")
