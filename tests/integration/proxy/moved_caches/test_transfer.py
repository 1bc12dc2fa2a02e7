"""Caches of sessions that move, at the gateway: when it asks for them, and what it counts."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.integration.proxy.moved_caches.conftest import COST, TEXT, Scene, Service
from tests.integration.upstream import Answer
from tokenweir.contract.records import State


def test_the_first_request_after_a_move_has_its_cache_moved(scene: Scene, service: Service) -> None:
    home, other = scene.begin()
    scene.load(home)
    assert scene.ask() == other
    ((words, model, body),) = service.asked
    assert words[:4] == ["move", home, other, "chat"]
    assert 3000 < int(words[4]) < 6000
    assert 1000 < int(words[5]) <= 5000
    assert (model, body["messages"]) == ("llama", scene.messages)
    assert "kv_transfer_params" not in scene.seen(other)
    scene.outcomes(done=1)
    scene.gateway.expect(4000, "tokenweir_kv_transfer_tokens_total")
    scene.gateway.expect(4_096_000, "tokenweir_kv_transfer_bytes_total")
    scene.gateway.expect(1, "tokenweir_kv_transfer_seconds_count", outcome="done")


def test_requests_that_do_not_move_ask_nobody(scene: Scene, service: Service) -> None:
    home, other = scene.begin()
    assert scene.ask() == home
    scene.load(home)
    for _ in range(3):
        assert scene.ask() == other
    assert len(service.asked) == 1
    scene.outcomes(done=1)


def test_parameters_of_the_engine_go_into_the_request(scene: Scene, service: Service) -> None:
    home, other = scene.begin()
    scene.load(home)
    handle = {"do_remote_prefill": True, "remote_block_ids": [1, 2], "remote_engine_id": "é"}
    text = json.dumps(handle, ensure_ascii=False).encode()
    service.answer = b"done 4000 0 %d\n%s" % (len(text), text)
    assert scene.ask(temperature=0) == other
    assert scene.seen(other) == {
        "model": "llama",
        "messages": scene.messages,
        "temperature": 0,
        "kv_transfer_params": handle,
    }
    scene.outcomes(done=1)
    # What is not told in bytes is reckoned.
    scene.gateway.expect(4000 * 1024, "tokenweir_kv_transfer_bytes_total")


def test_what_the_engine_then_found_is_counted(scene: Scene, service: Service) -> None:
    home, other = scene.begin()
    scene.load(home)
    usage = {"prompt_tokens": 4400, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 3900}}
    document = {"object": "chat.completion", "choices": [], "usage": usage}
    scene.upstreams[other].answer = Answer(body=json.dumps(document).encode())
    assert scene.ask() == other
    scene.gateway.expect(3900, "tokenweir_kv_transfer_found_tokens_total")


def test_a_request_with_parameters_of_its_own_is_left_alone(scene: Scene, service: Service) -> None:
    home, other = scene.begin()
    scene.load(home)
    assert scene.ask(kv_transfer_params={"mine": 1}) == other
    assert scene.seen(other)["kv_transfer_params"] == {"mine": 1}
    assert not service.asked
    scene.outcomes(impossible=1)


def test_with_the_adapter_none_nothing_is_asked_nor_counted(start: Callable[..., Scene]) -> None:
    scene = start({})
    service = Service(scene.gateway.paths.transfer_socket)
    home, other = scene.begin()
    scene.load(home)
    assert scene.ask() == other
    assert not service.asked
    assert scene.gateway.metric("tokenweir_kv_transfers_total") == 0
    service.stop()


def test_over_a_slow_link_the_prompt_is_computed_anew(start: Callable[..., Scene]) -> None:
    scene = start({"sessions": {"transfer": {"adapter": "agent", "bandwidth": 1e6}}})
    service = Service(scene.gateway.paths.transfer_socket)
    home, other = scene.begin()
    scene.load(home)
    assert scene.ask() == other
    assert not service.asked
    scene.outcomes(not_worth=1)
    service.stop()


def test_from_a_backend_that_is_down_nothing_can_be_moved(scene: Scene, service: Service) -> None:
    home, other = scene.begin()
    scene.load(home, state=State.DOWN)
    assert scene.ask() == other
    assert not service.asked
    scene.outcomes(impossible=1)


def test_a_backend_that_drains_hands_its_caches_on(scene: Scene, service: Service) -> None:
    home, other = scene.begin()
    scene.load(home, state=State.DRAINING)
    assert scene.ask() == other
    assert len(service.asked) == 1
    scene.outcomes(done=1)


def test_a_body_in_a_file_is_not_sent_around(scene: Scene, service: Service) -> None:
    home, other = scene.begin()
    scene.load(home)
    assert scene.ask(metadata={"padding": TEXT * 300}) == other
    assert not service.asked
    scene.outcomes(impossible=1)


def test_once_a_cache_was_brought_along_a_session_moves_to_a_backend_that_is_faster_by_more_than_that_takes(
    scene: Scene, service: Service
) -> None:
    def ask(session: str) -> str:
        return scene.ask(session, messages=[{"role": "user", "content": session + TEXT}])

    def living_at(name: str, kind: str) -> str:
        return next(session for session in (f"{kind}{k}" for k in range(40)) if ask(session) == name)

    def slow(name: str) -> None:
        cost = COST.model_copy(update={"base": 100})
        scene.gateway.publish(*scene.fleet(**{name.replace("-", "_"): {"cost": cost}}))

    home, other = scene.begin()
    scene.load(home)
    assert scene.ask() == other
    scene.outcomes(done=1)
    scene.gateway.publish(*scene.fleet())
    at_home, at_other = living_at(home, "a"), living_at(other, "b")
    slow(other)
    assert ask(at_other) == other, "no cache was ever brought to its neighbour: it would be computed anew"
    slow(home)
    assert ask(at_home) == other, "some ten seconds less, for some ten ms"
    scene.outcomes(done=2)
