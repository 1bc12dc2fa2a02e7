"""A host's wall clock that is wrong, or jumps: only limits a minute are cut by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.proxy.gateway import Gateway, backend, sha256
from tests.integration.proxy.test_sessions import ask, fleet
from tests.integration.servers import wait_until, well_within_a_minute
from tests.integration.upstream import Answer, Upstream, held

Start = Callable[..., Gateway]
DAY_S = 86_400


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """Holds by how many seconds the host's clock is ahead."""
    path = tmp_path / "ahead"
    path.write_text("0")
    return path


@pytest.mark.parametrize("jump", [DAY_S, -DAY_S], ids=["forward", "back"])
def test_requests_streams_and_leases_go_on_over_a_jump(
    start_gateway: Start, upstream: Upstream, clock: Path, jump: int
) -> None:
    gateway = start_gateway([backend(upstream)], settings={"limits": {"deadline_ms": 600_000}}, clock=clock)
    permits = held()
    upstream.script = [Answer(tokens=3, permits=permits)]
    stream = gateway.open(stream=True)
    wait_until(lambda: upstream.received, what="the stream")
    before = gateway.lease()
    clock.write_text(str(jump))
    wait_until(
        lambda: abs(gateway.lease()["time_ms"] - before["time_ms"]) > 1e6, what="the jump in the lease"
    )
    assert gateway.lease()["sequence"] > 0
    assert gateway.lease()["backends"]["gpu-a"]["n"] == 1
    assert gateway.post().status_code == 200
    gateway.publish(backend(upstream))
    permits.release(100)
    answer = stream.getresponse()
    assert answer.status == 200
    assert answer.read().endswith(b"data: [DONE]\n\n")
    gateway.settle()
    metrics = gateway.metrics()
    assert metrics["tokenweir_snapshot_stale"] == 0
    assert gateway.metric("tokenweir_ejections_total") == 0
    assert all(0 <= record["total_ms"] < 600_000 for record in gateway.completions(2))
    clock.write_text("0")
    assert gateway.post().status_code == 200


def test_a_key_s_minute_is_cut_anew_and_nobody_is_locked_out(
    start_gateway: Start, upstream: Upstream, clock: Path
) -> None:
    keys = [{"id": "k", "sha256": sha256("one"), "requests_per_minute": 2}]
    gateway = start_gateway([backend(upstream)], settings={"keys": keys, "require_key": True}, clock=clock)

    def status() -> int:
        return gateway.post(headers={"Authorization": "Bearer one"}).status_code

    assert 429 in [status() for _ in range(4)]
    clock.write_text(str(-DAY_S))
    assert status() == 200
    clock.write_text(str(DAY_S))
    assert status() == 200


def test_a_key_s_use_of_the_minute_before_is_told_too(
    start_gateway: Start, upstream: Upstream, clock: Path
) -> None:
    keys = [{"id": "k", "sha256": sha256("one"), "requests_per_minute": 100}]
    gateway = start_gateway([backend(upstream)], settings={"keys": keys, "require_key": True}, clock=clock)
    well_within_a_minute()
    assert gateway.post(headers={"Authorization": "Bearer one"}).status_code == 200
    gateway.settle()
    wait_until(lambda: gateway.lease()["keys"], what="the use in the lease")
    first = gateway.lease()["keys"]["k"]
    assert first["requests"] == 1
    clock.write_text("60")

    def use() -> dict[str, float]:
        return dict(gateway.lease()["keys"].get("k", {}))

    wait_until(lambda: use().get("minute") == first["minute"] + 1, what="the next minute")
    assert (use()["requests"], use()["requests_before"]) == (0, 1)
    assert use()["tokens_before"] == first["tokens"] > 0


@pytest.mark.parametrize("ahead", [DAY_S, -DAY_S], ids=["ahead", "behind"])
def test_moves_of_sessions_are_told_whatever_a_gateway_s_clock_says(
    start_gateway: Start, start_upstream: Callable[..., Upstream], clock: Path, ahead: int
) -> None:
    four = [start_upstream(f"gpu-{k}") for k in range(4)]
    clock.write_text(str(ahead))
    wrong = start_gateway(fleet(four), clock=clock)
    right = start_gateway(fleet(four), name="right", gateway_id="gw-right")
    home = {name: ask(right, name) for name in (f"s{k}" for k in range(12))}
    loaded = {u.name.replace("-", "_"): {"memory": 0.9} for u in four[:3]}
    right.publish(*fleet(four, **loaded))
    wrong.wait_for("snapshot", right.sequence)
    moved = [name for name in home if home[name] != "gpu-3"]
    half = len(moved) // 2
    assert {ask(right, name) for name in moved[:half]} == {"gpu-3"}
    assert {ask(wrong, name) for name in moved[half:]} == {"gpu-3"}
    right.publish(*fleet(four))
    wrong.wait_for("snapshot", right.sequence)
    wait_until(
        lambda: {ask(wrong, name) for name in moved[:half]} == {"gpu-3"}, what="the moves at the wrong"
    )
    wait_until(lambda: {ask(right, name) for name in moved[half:]} == {"gpu-3"}, what="those of the wrong")
    assert right.redis.xlen("tw:session:moves") > 0
