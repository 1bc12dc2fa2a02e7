"""Where a cache cannot be moved: nothing is lost, and no request waits longer than computing it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.proxy.moved_caches.conftest import COST, ON, TEXT, Scene, Service
from tests.integration.servers import replace_workers, wait_until


def test_one_that_fails_costs_nothing_more(scene: Scene, service: Service) -> None:
    home, other = scene.begin()
    scene.load(home)
    service.answer = b"failed no controller\n"
    assert scene.ask() == other
    scene.outcomes(failed=1)
    assert "the sidecar's log says why" in scene.gateway.error_log()


@pytest.mark.parametrize("answer", [b"done\n", b"done 1 2 999999999999\n", b"done 1 2 -3\n", b"\n"])
def test_an_answer_that_is_none_counts_as_a_failure(scene: Scene, service: Service, answer: bytes) -> None:
    home, other = scene.begin()
    scene.load(home)
    service.answer = answer
    assert scene.ask() == other
    scene.outcomes(failed=1)


def test_a_sidecar_that_is_not_there_is_not_waited_for(scene: Scene) -> None:
    home, other = scene.begin()
    scene.load(home)
    assert scene.ask() == other
    scene.outcomes(failed=1)


@pytest.mark.parametrize("answer", [None, b"done 4000 4096000 100\n{"])
def test_a_silent_one_is_waited_for_no_longer_than_the_limit(
    start: Callable[..., Scene], answer: bytes | None
) -> None:
    limited = {"sessions": {"transfer": {**ON["sessions"]["transfer"], "limit_ms": 300}}}
    scene = start(limited)
    service = Service(scene.gateway.paths.transfer_socket)
    home, other = scene.begin()
    scene.load(home)
    service.answer = answer
    assert scene.ask() == other
    scene.outcomes(late=1)
    wait_until(lambda: service.closed == 1, what="the end of the connection")
    waited = scene.gateway.metric("tokenweir_kv_transfer_seconds_sum", outcome="late")
    assert 0.25 < waited < 2.0  # its prefill takes 2.2 s
    service.stop()


def test_nor_longer_than_the_prefill(start: Callable[..., Scene]) -> None:
    fast: Any = COST.model_copy(update={"prefill": 0.05})
    scene = start(ON, gpu_0={"cost": fast}, gpu_1={"cost": fast})
    service = Service(scene.gateway.paths.transfer_socket)
    service.answer = None
    home, other = scene.begin()
    loaded = {name.replace("-", "_"): {"cost": fast} for name in (home, other)}
    loaded[home.replace("-", "_")]["memory"] = 0.9
    scene.gateway.publish(*scene.fleet(**loaded))
    assert scene.ask() == other
    scene.outcomes(late=1)
    waited = scene.gateway.metric("tokenweir_kv_transfer_seconds_sum", outcome="late")
    tokens = int(service.asked[0][0][4])
    assert int(service.asked[0][0][5]) <= tokens * 0.05
    assert waited < tokens * 0.05 / 1000 + 1.5
    service.stop()


def test_nor_beyond_the_request_s_deadline(start: Callable[..., Scene]) -> None:
    scene = start({**ON, "limits": {"deadline_ms": 800}})
    service = Service(scene.gateway.paths.transfer_socket)
    service.answer = None
    home, other = scene.begin()
    scene.load(home)
    assert scene.ask() == other
    scene.outcomes(late=1)
    assert int(service.asked[0][0][5]) < 800
    service.stop()


def test_after_a_failure_the_next_moves_are_not_tried_for_a_while(scene: Scene, service: Service) -> None:
    home, other = scene.begin()
    scene.load(other)
    sessions = {f"s{k}": [{"role": "user", "content": f"Number {k}. {TEXT}"}] for k in range(2, 6)}
    for session, messages in sessions.items():
        assert scene.ask(session, messages=messages) == home
    scene.load(home)
    service.answer = b"failed no controller\n"
    for session, messages in sessions.items():
        assert scene.ask(session, messages=messages) == other
    failed = len(service.asked)
    assert failed < len(sessions)
    scene.outcomes(failed=failed, resting=len(sessions) - failed)


def test_a_sidecar_that_was_started_anew_is_found_on_a_new_connection(scene: Scene, service: Service) -> None:
    home, other = scene.begin()
    scene.load(home)
    assert scene.ask() == other
    service.stop()
    again = Service(scene.gateway.paths.transfer_socket)
    second = [{"role": "user", "content": "Another one. " + TEXT}]
    scene.load(other)
    assert scene.ask("s2", messages=second) == home
    scene.load(home)
    assert scene.ask("s2", messages=second) == other
    scene.outcomes(done=2)
    assert len(again.asked) == 1
    again.stop()


def test_a_worker_that_is_killed_meanwhile_leaves_nothing_reserved(scene: Scene, service: Service) -> None:
    home, _ = scene.begin()
    scene.load(home)
    service.answer = None
    connection = scene.gateway.open(headers={"X-Session-ID": "s1"}, messages=scene.messages)
    wait_until(lambda: service.asked, what="a question")
    replace_workers(scene.gateway.workers)
    connection.close()
    scene.gateway.settle()
