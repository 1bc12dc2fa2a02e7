"""`bench/policy/simulation.py`: the event loop, and Tokenweir in it."""

from __future__ import annotations

from math import inf, isnan

import pytest

from bench.policy.control_plane import ControlPlane
from bench.policy.job import Job, Prediction
from bench.policy.policies import CHATS
from bench.policy.rivals import RIVALS, LeastOutstandingHold, RoundRobin
from bench.policy.routing import read
from bench.policy.tokenweir_router import Tokenweir
from emulator.engine import Exhaustion
from tests.unit.bench.policy.fleets import jobs, run, servers


@pytest.mark.parametrize("kind", list(Exhaustion))
def test_every_request_ends_and_the_ledger_is_empty_again(kind: Exhaustion) -> None:
    asked, fleet = jobs(rate=20), servers(kind=kind)
    router = Tokenweir(fleet, 1, "predictive")
    run(asked, fleet, router)
    assert all(not isnan(job.finished) for job in asked)
    assert router.totals == (0, 0, 0)
    assert router.waiting == 0


@pytest.mark.parametrize("name", sorted(RIVALS))
@pytest.mark.parametrize("kind", [Exhaustion.PREEMPT, Exhaustion.CRASH])
def test_every_rule_serves_a_whole_workload(name: str, kind: Exhaustion) -> None:
    asked, fleet = jobs(rate=6), servers(kind=kind)
    router = RIVALS[name](fleet, 1)
    run(asked, fleet, router)
    assert all(not isnan(job.finished) for job in asked)
    assert router.inflight == [0, 0, 0]


def test_the_same_seed_gives_the_same_run() -> None:
    def finished() -> list[float]:
        asked, fleet = jobs(), servers()
        run(asked, fleet, Tokenweir(fleet, 7, "predictive"))
        return [job.finished for job in asked]

    assert finished() == finished()


def test_each_request_of_the_trace_may_be_a_new_chat_and_keeps_the_session_that_it_has() -> None:
    asked = [Job(k, 0.0, 100, 10, session=session) for k, session in enumerate([None, ("log", 7), None])]
    CHATS.prepare(asked, 3)
    first, told, last = (job.session for job in asked)
    assert told == ("log", 7)
    assert None not in {first, last}
    assert first != last


def test_a_new_chat_begins_at_its_place_on_the_ring_while_no_other_costs_much_less() -> None:
    asked, fleet = jobs(10, rate=0.05), servers()
    CHATS.prepare(asked, 3)
    router = Tokenweir(fleet, 1, "predictive")
    run(asked, fleet, router)
    assert [job.server for job in asked] == [router.home(job.session) for job in asked]


def test_a_crash_fails_what_is_in_flight_and_the_server_comes_back_after_its_restart() -> None:
    asked, fleet = jobs(300, rate=30), servers(1, Exhaustion.CRASH)
    run(asked, fleet, RoundRobin(fleet, 1))
    assert fleet[0].crashes >= 1
    assert any(job.failure == "memory" for job in asked)
    down = max(job.finished for job in asked if job.failure == "memory")
    assert all(not job.sent > down or job.sent >= down + 5000 for job in asked if not job.failure)


def test_what_finds_no_room_waits_and_a_wait_over_the_limit_ends() -> None:
    asked, fleet = jobs(150, rate=40), servers(1)
    run(asked, fleet, LeastOutstandingHold(fleet, 1))
    assert any(job.sent > job.arrival for job in asked)
    refused = [job for job in asked if job.failure == "waited"]
    assert refused
    assert all(30_000 <= job.finished - job.arrival < 30_100 for job in refused)


def test_who_waits_is_served_in_the_order_of_the_shipped_queue() -> None:
    asked = [Job(k, float(k), 1500, 300, key="flood") for k in range(60)]
    asked.append(Job(60, 70.0, 1500, 300, key="single"))
    for job in asked:
        job.prediction = Prediction(300, 300, 300, 0)
    fleet = servers(1)
    router = Tokenweir(fleet, 1, "predictive")
    router.MOST_WAIT_MS = inf
    run(asked, fleet, router)
    single = asked[-1]
    before = [job for job in asked[:-1] if single.sent > job.sent > single.arrival]
    behind = [job for job in asked[:-1] if job.sent > single.sent]
    assert single.sent > single.arrival
    assert len(before) <= 4, "by turns with the flood, not behind it"
    assert len(behind) > 20


@pytest.mark.parametrize(("policy", "order"), [("hybrid", "score"), ("predictive", "fair")])
def test_the_queue_is_set_as_the_sidecar_sets_it(policy: str, order: str) -> None:
    fleet = servers()
    plane = ControlPlane(fleet, policy, None)
    told = plane.snapshot([read(server, 0.0) for server in fleet], 0.0)
    assert told["queue"]["order"] == order


def test_who_is_certain_to_wait_too_long_is_refused_at_once() -> None:
    asked, fleet = jobs(900, rate=60), servers(1)
    run(asked, fleet, Tokenweir(fleet, 1, "predictive"))
    waited = [job.finished - job.arrival for job in asked if job.failure == "waited"]
    assert min(waited) < 1000
    assert max(waited) < 30_100


def test_who_comes_while_another_waits_is_served_where_there_is_room_before_his_wait_is_reckoned() -> None:
    class Doubtful(Tokenweir):
        """Whoever has to wait is refused, but for the long one."""

        def doubts(self, job: Job, now: float) -> bool:
            return job.key != "long"

    asked, fleet = jobs(120, rate=3), servers(4, Exhaustion.CRASH)
    for job in asked:
        job.prompt //= 3
    long = Job(len(asked), 15_000.0, 14_000, 300, key="long")
    asked = sorted([*asked, long], key=lambda job: job.arrival)
    run(asked, fleet, Doubtful(fleet, 1, "predictive"))
    assert long.sent - long.arrival > 1000
    assert not [job for job in asked if job.failure]


def test_a_closed_loop_never_has_more_in_flight_than_clients() -> None:
    asked, fleet = jobs(60), servers()
    run(asked, fleet, RoundRobin(fleet, 1), clients=5)
    edges = sorted([(job.arrival, 1) for job in asked] + [(job.finished, -1) for job in asked])
    most = flying = 0
    for _, step in edges:
        flying += step
        most = max(most, flying)
    assert most == 5


def test_the_ledger_sees_the_progress_of_streams() -> None:
    asked, fleet = jobs(1), servers(1)
    asked[0].output = 100
    router = Tokenweir(fleet, 1, "predictive")
    seen: list[float] = []

    def watch(now: float, _: object) -> None:
        router._bring_up()
        if asked[0].sent < now and isnan(asked[0].finished):
            request = asked[0].request
            assert request is not None
            seen.append(router.totals[1] - asked[0].prompt - fleet[0].engine.generated(request))

    run(asked, fleet, router, watch=watch, watch_ms=50)  # type: ignore[arg-type]
    assert len(seen) > 5
    assert set(seen) <= {0, -1}, "only the first token is told by the time of the next"


@pytest.mark.parametrize("rate", [3, 5, 8])
def test_coarse_steps_change_little(rate: float) -> None:
    """With many waiting too. Nobody is refused here: a refusal hangs on an estimate near a limit, so a small
    difference changes who is served from then on, and finer steps would not tell more."""

    def mean(step_ms: float) -> float:
        asked, fleet = jobs(400, rate=rate), servers()
        router = Tokenweir(fleet, 1, "predictive")
        router.MOST_WAIT_MS = inf
        run(asked, fleet, router, step_ms=step_ms)
        return sum(job.finished - job.arrival for job in asked) / len(asked)

    assert mean(100) == pytest.approx(mean(0), rel=0.02)


def test_without_predictions_the_running_figures_serve() -> None:
    asked, fleet = jobs(), servers()
    for job in asked:
        job.prediction = Prediction()
    run(asked, fleet, Tokenweir(fleet, 1, "predictive"))
    assert not any(job.failure for job in asked)


def test_a_slow_server_is_found_out_by_the_fit_of_costs() -> None:
    asked, fleet = jobs(600, rate=4), servers(3)
    fleet[0].engine.pace.slowdown = 3.0
    run(asked, fleet, Tokenweir(fleet, 1, "predictive"))
    share = sum(job.server == 0 for job in asked) / len(asked)
    assert share < 0.25
