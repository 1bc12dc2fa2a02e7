"""Sessions at the gateway: they stay, they move, other gateways hear of it, responses are where they are."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import replace_workers, wait_until
from tests.integration.upstream import Answer, Upstream, held
from tokenweir.contract.records import Backend, State

Start = Callable[..., Gateway]
LARGE = {"capacity": 100_000}


@pytest.fixture
def four(start_upstream: Callable[..., Upstream]) -> list[Upstream]:
    """Four upstreams."""
    return [start_upstream(f"gpu-{k}") for k in range(4)]


def fleet(upstreams: list[Upstream], **changes: dict[str, Any]) -> list[Backend]:
    """Their backends; `changes` by name with underscores."""
    return [backend(u, **{**LARGE, **changes.get(u.name.replace("-", "_"), {})}) for u in upstreams]


def where(answer: httpx.Response) -> str:
    """The backend that answered."""
    assert answer.status_code == 200, answer.text
    return answer.headers["x-tokenweir-backend"]


def ask(gateway: Gateway, session: str, **members: Any) -> str:
    return where(gateway.post(headers={"X-Session-ID": session}, **members))


def _announced(gateway: Gateway) -> float:
    return gateway.metric("tokenweir_sessions_announced_total")


def told(gateway: Gateway) -> int:
    """Entries in the stream of moves."""
    return int(gateway.redis.xlen("tw:session:moves"))


def test_sessions_stay_and_are_spread(start_gateway: Start, four: list[Upstream]) -> None:
    gateway = start_gateway(fleet(four))
    homes = {f"s{k}": ask(gateway, f"s{k}") for k in range(40)}
    assert set(homes.values()) == {u.name for u in four}
    for _ in range(3):
        assert {name: ask(gateway, name) for name in homes} == homes
    wait_until(
        lambda: (
            sum(gateway.metric("tokenweir_session_requests_total", why=why) for why in ("home", "stay"))
            == 120
        ),
        what="what was counted",
    )
    assert gateway.metric("tokenweir_sessions") == 40


def test_a_chat_stays_by_its_first_messages_alone(start_gateway: Start, four: list[Upstream]) -> None:
    gateway = start_gateway(fleet(four))
    for topic in ("cats", "dogs", "cows", "pigs"):
        chat = [{"role": "user", "content": f"tell me of {topic}"}]
        servers = set()
        for turn in range(5):
            servers.add(where(gateway.post(messages=chat)))
            chat += [{"role": "assistant", "content": "well"}, {"role": "user", "content": f"and {turn}?"}]
        assert len(servers) == 1


def test_without_affinity_every_request_is_placed_by_itself(
    start_gateway: Start, four: list[Upstream]
) -> None:
    gateway = start_gateway(fleet(four), settings={"sessions": {"affinity": False}})
    assert len({ask(gateway, "s1") for _ in range(40)}) > 1


def test_two_gateways_send_a_session_to_the_same_backend(start_gateway: Start, four: list[Upstream]) -> None:
    one = start_gateway(fleet(four))
    two = start_gateway(fleet(four), name="two", gateway_id="gw-two")
    two.publish(*fleet(four))
    served = [ask(one, f"s{k}") for k in range(20)]
    # Those that did not begin at their place on the ring were told; the others are known within a second.
    moved = one.metric("tokenweir_sessions_moved")
    wait_until(lambda: two.metric("tokenweir_sessions_moved") == moved, what="the moves")
    wait_until(lambda: _announced(one) == 20, what="the sessions in Redis")
    time.sleep(0.5)
    assert [ask(two, f"s{k}") for k in range(20)] == served


def test_a_drained_backend_gives_its_sessions_to_all_others_and_keeps_no_new_ones(
    start_gateway: Start, four: list[Upstream]
) -> None:
    gateway = start_gateway(fleet(four))
    homes = {f"s{k}": ask(gateway, f"s{k}") for k in range(60)}
    gateway.publish(*fleet(four, gpu_0={"state": State.DRAINING}))
    after = {name: ask(gateway, name) for name in homes}
    moved = {name for name in homes if homes[name] != after[name]}
    assert moved == {name for name, home in homes.items() if home == "gpu-0"}
    assert {after[name] for name in moved} == {"gpu-1", "gpu-2", "gpu-3"}
    wait_until(lambda: gateway.metric("tokenweir_sessions_moved") >= len(moved), what="the moves")


def test_a_moved_session_is_known_to_another_gateway(start_gateway: Start, four: list[Upstream]) -> None:
    one = start_gateway(fleet(four))
    two = start_gateway(fleet(four), name="two", gateway_id="gw-two")
    home = {name: ask(two, name) for name in (f"s{k}" for k in range(12))}
    loaded = {u.name.replace("-", "_"): {"memory": 0.9} for u in four[:3]}
    two.publish(*fleet(four, **loaded))
    one.wait_for("snapshot", two.sequence)
    moved = [name for name in home if home[name] != "gpu-3"]
    assert {ask(one, name) for name in moved} == {"gpu-3"}
    two.publish(*fleet(four))
    wait_until(lambda: {ask(two, name) for name in moved} == {"gpu-3"}, what="the moves at the other")


def test_moves_survive_a_reload_and_a_new_start(start_gateway: Start, four: list[Upstream]) -> None:
    gateway = start_gateway(fleet(four))
    session = next(name for name in (f"s{k}" for k in range(20)) if ask(gateway, name) == "gpu-0")
    gateway.publish(*fleet(four, gpu_0={"memory": 0.9}))
    there = ask(gateway, session)
    assert there != "gpu-0"
    gateway.publish(*fleet(four))
    assert ask(gateway, session) == there
    before = set(gateway.workers())
    gateway.signal(signal.SIGHUP)
    wait_until(lambda: not before & set(gateway.workers()), what="new workers")
    assert ask(gateway, session) == there
    fresh = start_gateway(fleet(four), name="fresh", gateway_id="gw-fresh")
    wait_until(lambda: fresh.metric("tokenweir_sessions_moved") == 1, what="the move")
    assert ask(fresh, session) == there


def test_moves_made_while_redis_is_away_are_told_when_it_is_back(
    start_gateway: Start, four: list[Upstream], redis_server: Any
) -> None:
    gateway = start_gateway(fleet(four))
    session = next(name for name in (f"s{k}" for k in range(20)) if ask(gateway, name) == "gpu-0")
    gateway.publish(*fleet(four, gpu_0={"memory": 0.9}))
    redis_server.freeze()
    there = ask(gateway, session)
    assert there != "gpu-0"
    redis_server.thaw()
    wait_until(lambda: told(gateway) == 1, what="the move in Redis")


def test_a_worker_that_dies_loses_no_session(start_gateway: Start, four: list[Upstream]) -> None:
    gateway = start_gateway(fleet(four))
    session = next(name for name in (f"s{k}" for k in range(20)) if ask(gateway, name) == "gpu-0")
    gateway.publish(*fleet(four, gpu_0={"memory": 0.9}))
    there = ask(gateway, session)
    replace_workers(gateway.workers)
    wait_until(lambda: gateway.get("/readyz").status_code == 200, what="a ready gateway")
    gateway.publish(*fleet(four))
    assert ask(gateway, session) == there


def test_requests_that_share_a_long_beginning_go_where_it_is_cached(
    start_gateway: Start, four: list[Upstream]
) -> None:
    gateway = start_gateway(fleet(four))
    for upstream in four:
        upstream.answer = Answer(usage=False)
    document = "All work and no play makes Jack a dull boy. " * 2000

    def question(k: int) -> str:
        body = {"model": "llama", "prompt": f"{document} Question {k}?", "max_tokens": 5}
        return where(gateway.post("/v1/completions", body=json.dumps(body).encode()))

    first = question(0)
    assert {question(k) for k in range(1, 12)} == {first}
    gateway.expect(12, "tokenweir_requests_total", backend=first)
    assert gateway.metric("tokenweir_cached_prompt_tokens_reckoned_total") > 11 * 15_000


def test_a_long_beginning_in_a_body_that_nginx_put_into_a_file_counts_too(
    start_gateway: Start, four: list[Upstream]
) -> None:
    gateway = start_gateway(fleet(four), limits={"body_memory": "16KiB"})
    for upstream in four:
        upstream.answer = Answer(usage=False)
    document = "All work and no play makes Jack a dull boy. " * 2000
    servers = Counter(
        where(gateway.post(messages=[{"role": "user", "content": f"{document} {k}"}])) for k in range(10)
    )
    assert len(servers) == 1


class TestResponses:
    """State that only the backend which made it has."""

    @pytest.fixture
    def gateway(self, start_gateway: Start, four: list[Upstream]) -> Gateway:
        for upstream in four:
            body = {"id": f"resp_{upstream.name}", "object": "response", "status": "completed", "output": []}
            upstream.answer = Answer(body=json.dumps(body).encode())
        return start_gateway(fleet(four))

    def ask(self, gateway: Gateway, **members: Any) -> httpx.Response:
        body = {"model": "llama", "input": "more", **members}
        return gateway.post("/v1/responses", body=json.dumps(body).encode())

    def test_what_goes_on_from_a_response_goes_to_who_made_it(self, gateway: Gateway) -> None:
        makers = {where(self.ask(gateway, input=f"new {k}")) for k in range(20)}
        assert len(makers) > 1
        for maker in makers:
            for _ in range(3):
                assert where(self.ask(gateway, previous_response_id=f"resp_{maker}")) == maker
            for suffix in ("", "/input_items", "?stream=false"):
                answer = gateway.get(f"/v1/responses/resp_{maker}{suffix}")
                assert where(answer) == maker

    @pytest.mark.parametrize("policy", ["round_robin", "least_conn", "hybrid"])
    def test_so_it_does_under_policies_that_know_no_sessions(
        self, gateway: Gateway, four: list[Upstream], policy: str
    ) -> None:
        gateway.publish(*fleet(four), policy=policy)
        for maker in {where(self.ask(gateway, input=f"new {k}")) for k in range(8)}:
            for _ in range(5):
                assert where(self.ask(gateway, previous_response_id=f"resp_{maker}")) == maker

    def test_another_gateway_knows_too(
        self, gateway: Gateway, start_gateway: Start, four: list[Upstream]
    ) -> None:
        other = start_gateway(fleet(four), name="two", gateway_id="gw-two")
        maker = where(self.ask(gateway))
        wait_until(lambda: other.metric("tokenweir_sessions") >= 1, what="the response at the other gateway")
        for _ in range(6):
            assert where(other.get(f"/v1/responses/resp_{maker}")) == maker

    def test_a_streamed_response_is_known_as_soon_as_it_begins(
        self, gateway: Gateway, four: list[Upstream]
    ) -> None:
        created = {"type": "response.created", "response": {"id": "resp_live", "status": "in_progress"}}
        delta = {"type": "response.output_text.delta", "delta": "x"}
        permits = held()
        for upstream in four:
            upstream.answer = Answer(
                events=[b"data: " + json.dumps(event).encode() + b"\n\n" for event in (created, delta)],
                permits=permits,
            )
        body = json.dumps({"model": "llama", "input": "x", "stream": True}).encode()
        with httpx.stream("POST", f"{gateway.url}/v1/responses", content=body) as stream:
            maker = stream.headers["x-tokenweir-backend"]
            pieces = stream.iter_bytes()
            next(pieces)
            for upstream in four:
                upstream.answer = Answer()
            for _ in range(5):
                assert where(gateway.get("/v1/responses/resp_live")) == maker
            permits.release()
            assert list(pieces)

    def test_a_backend_that_drains_still_has_its_responses(
        self, gateway: Gateway, four: list[Upstream]
    ) -> None:
        maker = where(self.ask(gateway))
        gateway.publish(*fleet(four, **{maker.replace("-", "_"): {"state": State.DRAINING}}))
        assert where(self.ask(gateway, previous_response_id=f"resp_{maker}")) == maker

    def test_where_it_cannot_be_reached_the_client_is_told_so(
        self, gateway: Gateway, four: list[Upstream]
    ) -> None:
        maker = where(self.ask(gateway))
        gateway.publish(*fleet(four, **{maker.replace("-", "_"): {"state": State.DOWN}}))
        answer = self.ask(gateway, previous_response_id=f"resp_{maker}")
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "response_unavailable"
        assert int(answer.headers["retry-after"]) >= 1

    def test_a_response_that_nobody_here_knows_is_the_engines_to_judge(self, gateway: Gateway) -> None:
        assert self.ask(gateway, previous_response_id="resp_unknown").status_code == 200


def test_a_gateway_that_knows_the_fleet_before_the_settings_starts_all_the_same(
    tmp_path: Path, redis_server: Any, four: list[Upstream]
) -> None:
    gateway = Gateway(tmp_path / "gateway", redis_server.port)
    try:
        gateway.publish(*fleet(four), wait=False)
        gateway.start()
        gateway.wait_for("snapshot", gateway.sequence)
        assert gateway.get("/readyz").status_code == 503
        time.sleep(0.5)  # the load of the fleet is looked at four times a second
        gateway.configure(models=[{"name": "llama"}])
        assert ask(gateway, "s1")
    finally:
        gateway.stop()
    assert "aborted" not in gateway.error_log()


def test_parameters_of_disaggregated_serving_pass_both_ways_unchanged(
    gateway: Gateway, upstream: Upstream
) -> None:
    params = (
        b'{"do_remote_prefill":true, "remote_engine_id":"e1","remote_block_ids":[ 1,2 ],"remote_port":5600}'
    )
    body = b'{"model":"llama","messages":[{"role":"user","content":"hi"}],"kv_transfer_params":%s}' % params
    upstream.answer = Answer(
        body=b'{"object":"chat.completion","choices":[],"kv_transfer_params":%s}' % params
    )
    answer = gateway.post(body=body, headers={"X-Session-ID": "s1"})
    assert upstream.received[0].body == body
    assert answer.content == upstream.received[0].sent
    assert params in answer.content
