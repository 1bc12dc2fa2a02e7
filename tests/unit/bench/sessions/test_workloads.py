"""`bench/sessions`: the workloads, the ideal caches, and requests that follow one another."""

from __future__ import annotations

from bench.policy.job import Job
from bench.policy.rivals import LeastOutstanding
from bench.policy.server import Server, ServerSpec
from bench.sessions import bars, ideal, ring, runs
from bench.sessions.conversations import AGENT_BLOCK, agents, first_of
from bench.sessions.runs import OWN, ROUTERS, Size, execute
from bench.sessions.simulation import Conversations

SMALL = Size(0, 4, (1,))


def job(number: int, *blocks: int) -> Job:
    return Job(number, float(number), 10 * len(blocks) + 1, 5, hashes=blocks)


def test_each_call_of_an_agent_begins_with_the_whole_conversation_before() -> None:
    made = agents(3, 60.0, 1, calls=(5, 8))
    assert len(first_of(made)) == 3
    for number, (follower, after) in made.next_of.items():
        before = made.jobs[number]
        assert follower.session == before.session
        assert follower.prompt > before.prompt + before.output
        known = (before.prompt + before.output) // AGENT_BLOCK
        assert follower.hashes[:known] == before.hashes[:known]
        assert after > 0


def test_agents_of_one_kind_share_their_instructions_and_others_nothing() -> None:
    made = agents(40, 60.0, 1, calls=(1, 1))
    firsts = {job.key: job.hashes for job in made.jobs}
    for job_ in made.jobs:
        assert job_.hashes[:20] == firsts[job_.key][:20]
    assert len({hashes[0] for hashes in firsts.values()}) == len(firsts) == 4


def test_a_call_comes_only_when_the_one_before_has_ended() -> None:
    made = agents(4, 600.0, 1, calls=(4, 6))
    servers = [Server(ServerSpec("A100-80G", "llama-3-8b", hash_tokens=AGENT_BLOCK)) for _ in range(2)]
    Conversations(made, servers, LeastOutstanding(servers, 1)).run()
    for number, (follower, after) in made.next_of.items():
        assert follower.arrival >= made.jobs[number].finished + after - 1e-6


def test_an_endless_cache_finds_all_that_was_there_before() -> None:
    jobs = [job(0, 1, 2, 3), job(1, 1, 2, 4), job(2, 1, 2, 4)]
    assert ideal.hit_rate(jobs, 10) == (20 + 30) / (3 * 31)


def test_a_cache_of_a_size_forgets_what_was_used_longest_ago() -> None:
    jobs = [job(0, 1, 2), job(1, 3, 4), job(2, 1, 2)]
    assert ideal.hit_rate(jobs, 10, capacity=20) == 0
    assert ideal.hit_rate(jobs, 10, capacity=40) > 0


def test_a_run_of_every_router_has_its_figures() -> None:
    found = {name: execute("agents", name, SMALL, 1) for name in ROUTERS}
    for figures in found.values():
        assert figures["failed"] == 0
        assert 0 < figures["hit_rate"] <= figures["ideal_infinite"] <= 1
    assert found[OWN]["hit_rate"] > found["least_outstanding"]["hit_rate"]
    assert found["consistent_hash"]["backends_of_a_session"] == 1


def test_hot_sessions_have_their_places_on_one_backend() -> None:
    name = runs._hot_names(1)
    assert len({name(k) for k in range(5)}) == 5


def test_the_ring_is_measured_and_barred() -> None:
    assert ring.SIZES[-1] == 1000
    program = ring.new_runtime().execute(ring.PROGRAM.read_bytes())
    assert program.moved_needlessly(8, 2000, -1) == 0
    assert program.share_error(8, 40_000, 4) < bars.SHARE_ERROR
