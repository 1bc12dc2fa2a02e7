"""`bench/policy/limits.py`: what no policy can better."""

from __future__ import annotations

import pytest

from bench.policy.job import Job
from bench.policy.limits import alone_ms, full_memory_rate
from bench.policy.rivals import RoundRobin
from bench.policy.server import ServerSpec
from tests.unit.bench.policy.fleets import run, servers


def test_a_request_alone_takes_what_the_engine_takes_over_it() -> None:
    fleet = servers(1)
    job = Job(0, 0.0, 1000, 300)
    run([job], fleet, RoundRobin(fleet, 1))
    assert alone_ms(job, fleet[0].spec) == pytest.approx(job.finished, rel=0.05)


def test_a_full_memory_completes_its_requests_in_the_time_that_they_hold_it() -> None:
    jobs = [Job(0, 0.0, 900, 200)]
    spec = ServerSpec(capacity=16_000)
    sixteen = full_memory_rate(jobs, [spec])
    assert full_memory_rate(jobs, [spec] * 3) == pytest.approx(3 * sixteen)
    assert full_memory_rate(jobs, [spec.but(slowdown=2.0)]) == pytest.approx(sixteen / 2)


def test_no_load_gets_more_out_of_a_server_than_a_full_memory() -> None:
    asked = [Job(k, 0.0, 900, 200) for k in range(200)]
    fleet = servers(1)
    run(asked, fleet, RoundRobin(fleet, 1))
    rate = 1000 * len(asked) / max(job.finished for job in asked)
    limit = full_memory_rate(asked, [fleet[0].spec])
    assert 0.7 * limit < rate <= 1.05 * limit
