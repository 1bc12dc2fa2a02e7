"""Caches of sessions that move, at the gateway: when it asks for them, how long it waits, what it counts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import wait_until
from tests.integration.upstream import Answer, Upstream
from tokenweir.contract.records import Backend, Cost, State

Start = Callable[..., Gateway]
COST = Cost(prefill=0.5, base=10, per_sequence=0.1, per_kv_token=0.0001)
KV = {"capacity": 100_000, "kv_bytes": 1024, "cost": COST}
ON = {"sessions": {"transfer": {"adapter": "agent", "bandwidth": 1e9, "latency_ms": 5}}}
TEXT = "All work and no play makes Jack a dull boy. " * 400
"""17,600 bytes, some 4,400 tokens: 2.2 s of prefill."""


class Service:
    """What the sidecar of the host answers, scripted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answer: bytes | None = b"done 4000 4096000 0\n"
        """None: nothing, ever."""
        self.asked: list[tuple[list[str], str, dict[str, Any]]] = []
        self.closed = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._connections: list[socket.socket] = []
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        self._socket.bind(str(path))
        self._socket.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while line := stream.readline():
                words = line.decode().split()
                model, body = stream.read(int(words[6])).decode(), stream.read(int(words[7]))
                self.asked.append((words, model, json.loads(body)))
                if self.answer is not None:
                    connection.sendall(self.answer)
        self.closed += 1

    def stop(self) -> None:
        self._socket.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.path.unlink(missing_ok=True)


class Scene:
    """Two backends; a session that lives on one of them moves when that is loaded."""

    def __init__(self, gateway: Gateway, upstreams: list[Upstream]) -> None:
        self.gateway = gateway
        self.upstreams = {u.name: u for u in upstreams}
        self.messages = [{"role": "user", "content": TEXT}]

    def fleet(self, **changes: dict[str, Any]) -> list[Backend]:
        return [
            backend(u, **{**KV, **changes.get(name.replace("-", "_"), {})})
            for name, u in self.upstreams.items()
        ]

    def ask(self, session: str = "s1", **members: Any) -> str:
        answer = self.gateway.post(
            headers={"X-Session-ID": session}, **({"messages": self.messages} | members)
        )
        assert answer.status_code == 200, answer.text
        self.gateway.settle()
        return str(answer.headers["x-tokenweir-backend"])

    def begin(self) -> tuple[str, str]:
        """The backend where it lives, and the other."""
        home = self.ask()
        return home, next(name for name in self.upstreams if name != home)

    def load(self, name: str, **changes: Any) -> None:
        """That backend is loaded, and only that."""
        self.gateway.publish(*self.fleet(**{name.replace("-", "_"): {"memory": 0.9, **changes}}))

    def seen(self, name: str) -> dict[str, Any]:
        """The body of the last request that a backend got."""
        return dict(json.loads(self.upstreams[name].received[-1].body))

    def outcomes(self, **wanted: float) -> None:
        """Waits until so many moves ended so, and no other way."""
        for outcome, count in wanted.items():
            self.gateway.expect(count, "tokenweir_kv_transfers_total", outcome=outcome, model="llama")
        assert self.gateway.metric("tokenweir_kv_transfers_total") == sum(wanted.values())
        assert self.gateway.inflight() == 0


@pytest.fixture
def start(start_gateway: Start, start_upstream: Callable[..., Upstream]) -> Callable[..., Scene]:
    """Starts a scene: `start(settings)`."""

    def make(settings: dict[str, Any] | None = None, **changes: dict[str, Any]) -> Scene:
        upstreams = [start_upstream(f"gpu-{k}") for k in range(2)]
        for upstream in upstreams:
            upstream.answer = Answer(usage=False)
        fleet = [backend(u, **{**KV, **changes.get(u.name.replace("-", "_"), {})}) for u in upstreams]
        gateway = start_gateway(fleet, settings=ON if settings is None else settings, workers=1)
        return Scene(gateway, upstreams)

    return make


@pytest.fixture
def scene(start: Callable[..., Scene]) -> Scene:
    return start()


@pytest.fixture
def service(scene: Scene) -> Iterator[Service]:
    found = Service(scene.gateway.paths.transfer_socket)
    yield found
    found.stop()


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


class TestFailure:
    """Whatever fails, the request is served, and waits no longer than its prefill would take."""

    def test_one_that_fails_costs_nothing_more(self, scene: Scene, service: Service) -> None:
        home, other = scene.begin()
        scene.load(home)
        service.answer = b"failed no controller\n"
        assert scene.ask() == other
        scene.outcomes(failed=1)
        assert "the sidecar's log says why" in scene.gateway.error_log()

    @pytest.mark.parametrize("answer", [b"done\n", b"done 1 2 999999999999\n", b"done 1 2 -3\n", b"\n"])
    def test_an_answer_that_is_none_counts_as_a_failure(
        self, scene: Scene, service: Service, answer: bytes
    ) -> None:
        home, other = scene.begin()
        scene.load(home)
        service.answer = answer
        assert scene.ask() == other
        scene.outcomes(failed=1)

    def test_a_sidecar_that_is_not_there_is_not_waited_for(self, scene: Scene) -> None:
        home, other = scene.begin()
        scene.load(home)
        assert scene.ask() == other
        scene.outcomes(failed=1)

    @pytest.mark.parametrize("answer", [None, b"done 4000 4096000 100\n{"])
    def test_a_silent_one_is_waited_for_no_longer_than_the_limit(
        self, start: Callable[..., Scene], answer: bytes | None
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

    def test_nor_longer_than_the_prefill(self, start: Callable[..., Scene]) -> None:
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

    def test_nor_beyond_the_request_s_deadline(self, start: Callable[..., Scene]) -> None:
        scene = start({**ON, "limits": {"deadline_ms": 800}})
        service = Service(scene.gateway.paths.transfer_socket)
        service.answer = None
        home, other = scene.begin()
        scene.load(home)
        assert scene.ask() == other
        scene.outcomes(late=1)
        assert int(service.asked[0][0][5]) < 800
        service.stop()

    def test_after_a_failure_the_next_moves_are_not_tried_for_a_while(
        self, scene: Scene, service: Service
    ) -> None:
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

    def test_a_sidecar_that_was_started_anew_is_found_on_a_new_connection(
        self, scene: Scene, service: Service
    ) -> None:
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

    def test_a_worker_that_is_killed_meanwhile_leaves_nothing_reserved(
        self, scene: Scene, service: Service
    ) -> None:
        home, _ = scene.begin()
        scene.load(home)
        service.answer = None
        connection = scene.gateway.open(headers={"X-Session-ID": "s1"}, messages=scene.messages)
        wait_until(lambda: service.asked, what="a question")
        before = set(scene.gateway.workers())
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: set(scene.gateway.workers()) - before, what="a new worker")
        connection.close()
        scene.gateway.settle()


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
