"""`bench/policy/idle.py`: what no policy can better."""

from __future__ import annotations

import pytest

from bench.policy import figures, idle
from bench.policy.figures import Objectives
from bench.policy.job import Job
from bench.policy.rivals import RoundRobin
from bench.policy.server import ServerSpec
from tests.unit.bench.policy.fleets import jobs, run, servers

SPEC = ServerSpec(capacity=16_000)


def test_a_request_alone_takes_what_it_takes_on_a_server_without_others() -> None:
    fleet = servers(1)
    job = Job(0, 0.0, 1000, 300)
    run([job], fleet, RoundRobin(fleet, 1))
    found = idle.figures([Job(0, 0.0, 1000, 300)], [fleet[0].spec], Objectives())
    assert found["p99_s"] == pytest.approx(job.finished / 1000)
    assert found["good_share"] == 1


def test_each_request_has_the_fastest_of_the_servers() -> None:
    alone = idle.figures([Job(0, 0.0, 1000, 300)], [SPEC], Objectives())
    mixed = idle.figures([Job(0, 0.0, 1000, 300)], [SPEC.but(slowdown=3.0), SPEC], Objectives())
    assert mixed == alone


def test_what_was_asked_before_is_cached_for_ever() -> None:
    spec = SPEC.but(hash_tokens=512)
    asked = [Job(k, 0.0, 10_240, 2, hashes=tuple(range(20))) for k in range(3)]
    others = [Job(k, 0.0, 10_240, 2, hashes=tuple(range(100 * k, 100 * k + 20))) for k in range(3)]
    assert (
        idle.figures(asked, [spec], Objectives())["p50_s"]
        < 0.2 * (idle.figures(others, [spec], Objectives())["p50_s"])
    )


def test_no_rule_serves_faster() -> None:
    fleet = servers(3)
    asked = jobs()
    limit = idle.figures(asked, [server.spec for server in fleet], Objectives())
    run(asked, fleet, RoundRobin(fleet, 1))
    found = figures.of_run(asked, fleet, Objectives())
    assert limit["p50_s"] <= found["p50_s"]
    assert limit["p99_s"] <= found["p99_s"]
    assert limit["good_share"] >= found["good_share"]


def test_what_is_too_slow_even_alone_is_not_good() -> None:
    found = idle.figures([Job(0, 0.0, 1000, 300)], [SPEC.but(slowdown=20.0)], Objectives())
    assert found["good_share"] == 0
