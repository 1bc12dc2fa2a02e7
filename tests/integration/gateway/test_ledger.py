"""What is in flight is counted over all workers and gateways, and comes back to exactly zero."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.gateway.conftest import Publish
from tests.integration.gateway.gateway import Gateway, backend
from tests.integration.servers import is_alive, replace_workers, wait_until

StartGateway = Callable[..., Gateway]


def everything(gateway: Gateway) -> float:
    """The sum of all figures of all own rows: zero means that nothing at all is left."""
    return sum(load["everything"] for load in gateway.json("own").values())


@pytest.fixture
def clients() -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    """Threads that hold requests."""
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        yield pool


def settle(gateway: Gateway) -> None:
    """Waits until nothing is left: an answer is over a moment before its reservation is released."""
    wait_until(lambda: everything(gateway) == 0, what="zero")


def hold(gateway: Gateway, **query: object) -> int:
    """Holds one request until it is let go; 0 if the connection broke."""
    try:
        return gateway.get("hold", **{"ms": 60_000, **query}).status_code
    except httpx.HTTPError:
        return 0


def answers(gateway: Gateway) -> float:
    """Reservations of gpu-a; none where the worker that was asked has just died."""
    try:
        return float(gateway.json("own").get("gpu-a", {"n": 0})["n"])
    except httpx.HTTPError:
        return 0


def test_reservations_of_all_workers_are_summed_and_return_to_zero(
    gateway: Gateway, clients: concurrent.futures.ThreadPoolExecutor
) -> None:
    held = [clients.submit(hold, gateway, prompt=100) for _ in range(40)]
    wait_until(lambda: gateway.json("own")["gpu-a"]["n"] == 40, what="40 reservations")
    view = gateway.json("view")
    assert view["gpu-a"]["n"] == view["gpu-a"]["in_buckets"] == 40
    assert view["gpu-a"]["held"] >= 4000
    assert view["gpu-b"]["n"] == 0
    gateway.let_go()
    assert all(future.result() == 200 for future in held)
    settle(gateway)
    assert gateway.metrics()['tokenweir_inflight{backend="gpu-a"}'] == 0


@pytest.mark.parametrize(
    ("bounds", "served"),
    [
        ({"concurrency": 2}, 2),
        ({"capacity": 900, "engine": "vllm"}, 1),
        ({"capacity": 40_000, "engine": "vllm"}, 6),
    ],
)
def test_of_those_who_picked_a_place_at_the_same_moment_the_last_give_it_back(
    start_gateway: StartGateway,
    publish: Publish,
    clients: concurrent.futures.ThreadPoolExecutor,
    bounds: dict[str, object],
    served: int,
) -> None:
    with publish.again(backends=[backend("gpu-a", **bounds)]):
        gateway = start_gateway()
        gateway.wait_for("settings", 1)
        gateway.wait_for("snapshot", 1)
        claims = [clients.submit(gateway.json, "claim", rank=rank, count=6, prompt=450) for rank in range(6)]
        assert [claim.result() for claim in claims] == [True] * served + [False] * (6 - served)
        settle(gateway)


def test_what_a_killed_worker_held_is_gone_within_a_moment(
    gateway: Gateway, clients: concurrent.futures.ThreadPoolExecutor
) -> None:
    held = [clients.submit(hold, gateway) for _ in range(20)]
    wait_until(lambda: gateway.json("own")["gpu-a"]["n"] == 20)
    victim = gateway.nginx.workers()[0]
    os.kill(victim, signal.SIGKILL)

    def gone() -> bool:
        broken = sum(future.done() for future in held)
        return broken > 0 and gateway.json("own")["gpu-a"]["n"] == 20 - broken

    wait_until(gone, what="the end of the dead worker's row")
    gateway.let_go()
    assert {future.result() for future in held} <= {0, 200}
    settle(gateway)
    wait_until(lambda: gateway.metrics()["tokenweir_workers_swept_total"] == 1, what="the count of the dead")


def test_killing_every_worker_again_and_again_leaves_nothing(
    gateway: Gateway, clients: concurrent.futures.ThreadPoolExecutor
) -> None:
    held = []
    for _ in range(5):
        held += [clients.submit(hold, gateway, stream=1) for _ in range(10)]
        wait_until(lambda: answers(gateway) > 0, what="a reservation")
        replace_workers(gateway.nginx.workers)
    gateway.let_go()
    for future in held:
        future.result()
    settle(gateway)
    wait_until(lambda: gateway.metrics()["tokenweir_workers"] == 2, what="two workers")


def test_streams_of_old_workers_count_after_a_reload_until_they_end(
    gateway: Gateway, clients: concurrent.futures.ThreadPoolExecutor
) -> None:
    held = [clients.submit(hold, gateway, stream=1) for _ in range(20)]
    wait_until(lambda: gateway.json("own")["gpu-a"]["flowing"] == 20)
    gateway.nginx.reload()
    wait_until(lambda: gateway.metrics()["tokenweir_workers"] == 4, what="old and new workers")
    more = [clients.submit(hold, gateway) for _ in range(10)]
    wait_until(lambda: gateway.json("own")["gpu-a"]["n"] == 30, what="30 reservations")
    gateway.let_go()
    assert [future.result() for future in held + more] == [200] * 30
    settle(gateway)
    wait_until(lambda: gateway.metrics()["tokenweir_workers"] == 2, what="old workers gone")


def test_reloads_under_load_lose_nothing_and_leak_no_descriptor(
    gateway: Gateway, clients: concurrent.futures.ThreadPoolExecutor
) -> None:
    def descriptors() -> int:
        return len(list(Path(f"/proc/{gateway.nginx.master}/fd").iterdir()))

    gateway.nginx.reload()
    wait_until(lambda: len(gateway.nginx.workers()) == 2, what="old workers gone")
    before = descriptors()
    stop = threading.Event()

    def client() -> list[int]:
        answers = []
        while not stop.is_set():
            answers.append(hold(gateway, ms=120, stream=1))
        return answers

    running = [clients.submit(client) for _ in range(8)]
    for _ in range(5):
        gateway.nginx.reload()
        time.sleep(0.2)
    stop.set()
    answers = [answer for future in running for answer in future.result()]
    assert answers.count(200) == len(answers) > 30
    settle(gateway)
    wait_until(lambda: len(gateway.nginx.workers()) == 2, what="old workers gone")
    wait_until(lambda: descriptors() <= before, what="no descriptor more than before")


def test_testing_the_configuration_harms_nothing(
    gateway: Gateway, clients: concurrent.futures.ThreadPoolExecutor
) -> None:
    held = clients.submit(hold, gateway)
    wait_until(lambda: gateway.json("own")["gpu-a"]["n"] == 1)
    result = gateway.nginx.command("-t")
    assert result.returncode == 0, result.stderr
    assert gateway.json("own")["gpu-a"]["n"] == 1
    gateway.let_go()
    assert held.result() == 200
    settle(gateway)


def test_a_binary_upgrade_counts_old_and_new_workers_together(
    start_gateway: StartGateway, publish: Publish, clients: concurrent.futures.ThreadPoolExecutor
) -> None:
    publish()
    gateway = start_gateway(detached=True)
    wait_until(lambda: gateway.json("state").get("backends"))
    held = [clients.submit(hold, gateway, ms=12_000, stream=1) for _ in range(6)]
    wait_until(lambda: gateway.json("own")["gpu-a"]["n"] == 6)
    old = gateway.nginx.master
    gateway.nginx.signal(signal.SIGUSR2)
    pid_file = gateway.nginx.folder / "nginx.pid"

    def another_master() -> bool:
        with contextlib.suppress(FileNotFoundError):
            return pid_file.read_text().strip() not in ("", str(old))
        return False

    wait_until(another_master, what="the new master")
    gateway.nginx.master = int(pid_file.read_text())
    wait_until(lambda: gateway.metrics()["tokenweir_workers"] == 4, what="workers of both masters")
    os.kill(old, signal.SIGQUIT)
    wait_until(lambda: gateway.json("state").get("backends"))
    assert gateway.json("own")["gpu-a"]["n"] == 6
    assert [future.result() for future in held] == [200] * 6
    settle(gateway)
    wait_until(lambda: not is_alive(old), what="the old master's end")


def test_a_full_restart_begins_with_zero(
    gateway: Gateway, start_gateway: StartGateway, clients: concurrent.futures.ThreadPoolExecutor
) -> None:
    held = clients.submit(hold, gateway)
    wait_until(lambda: gateway.json("own")["gpu-a"]["n"] == 1)
    workers = gateway.nginx.workers()
    gateway.nginx.signal(signal.SIGKILL)
    for pid in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    held.result()
    again = start_gateway()
    wait_until(lambda: again.json("own"))
    assert everything(again) == 0


def test_a_backend_that_vanishes_and_comes_back_has_its_count_and_loses_it(
    gateway: Gateway, publish: Publish, clients: concurrent.futures.ThreadPoolExecutor
) -> None:
    held = clients.submit(hold, gateway)
    wait_until(lambda: gateway.json("own")["gpu-a"]["n"] == 1)
    publish(sequence=2, backends=[backend("gpu-b"), backend("gpu-c")])
    gateway.wait_for("snapshot", 2)
    assert set(gateway.json("own")) == {"gpu-b", "gpu-c"}
    assert everything(gateway) == 0
    publish(sequence=3, backends=[backend("gpu-b"), backend("gpu-a")])
    gateway.wait_for("snapshot", 3)
    assert gateway.json("own")["gpu-a"]["n"] == 1
    gateway.let_go()
    assert held.result() == 200
    settle(gateway)


def test_foreign_load_counts_only_while_the_snapshot_is_fresh(gateway: Gateway, publish: Publish) -> None:
    backends = [backend("gpu-a", foreign={"requests": 3, "tokens": 900}), backend("gpu-b")]
    with publish.again(backends=backends):
        gateway.wait_for("snapshot", 2)
        view = gateway.json("view")["gpu-a"]
        assert (view["n"], view["held"], view["in_buckets"]) == (3, 900, 3)
    wait_until(lambda: gateway.json("view")["gpu-a"]["n"] == 0, what="staleness")


def test_a_request_that_does_not_stream_moves_on_with_time(
    gateway: Gateway, clients: concurrent.futures.ThreadPoolExecutor
) -> None:
    held = clients.submit(hold, gateway, prompt=100)
    wait_until(lambda: gateway.json("view")["gpu-a"]["n"] == 1)
    first = gateway.json("view")["gpu-a"]
    wait_until(lambda: gateway.json("view")["gpu-a"]["held"] >= first["held"] + 10, what="estimated progress")
    later = gateway.json("view")["gpu-a"]
    assert later["remaining"] < 50
    assert later["prefill"] == 0
    gateway.let_go()
    held.result()
    settle(gateway)


def test_two_gateways_see_each_others_load_and_forget_a_dead_one(
    gateway: Gateway, start_gateway: StartGateway, clients: concurrent.futures.ThreadPoolExecutor
) -> None:
    other = start_gateway("gw-2")
    wait_until(lambda: other.json("state").get("backends"))
    held = [clients.submit(hold, gateway, stream=1) for _ in range(7)]
    wait_until(lambda: other.json("view")["gpu-a"]["n"] == 7, what="the other gateway's load")
    view = other.json("view")["gpu-a"]
    assert view["in_buckets"] == 7
    assert view["held"] >= 700
    assert other.json("own")["gpu-a"]["n"] == 0
    assert other.metrics()["tokenweir_peers"] == 1
    gateway.let_go()
    for future in held:
        future.result()
    wait_until(lambda: other.json("view")["gpu-a"]["n"] == 0, what="zero at the other gateway")

    held = [clients.submit(hold, gateway) for _ in range(3)]
    wait_until(lambda: other.json("view")["gpu-a"]["n"] == 3)
    gateway.nginx.stop()
    wait_until(lambda: other.json("view")["gpu-a"]["n"] == 0, what="the lease's end")
    wait_until(lambda: other.metrics()["tokenweir_peers"] == 0, what="no peer")
    for future in held:
        future.result()


def test_the_queue_of_all_workers_is_seen_and_a_dead_waiter_leaves_it(
    gateway: Gateway, clients: concurrent.futures.ThreadPoolExecutor
) -> None:
    def wait(ms: int) -> None:
        with contextlib.suppress(httpx.HTTPError):
            gateway.get("wait", ms=ms)

    waiting = [clients.submit(wait, 30_000)]
    series = 'tokenweir_queue_depth{model="llama",priority="normal"}'
    wait_until(lambda: gateway.metrics()[series] == 1)
    assert gateway.metrics()['tokenweir_queue_oldest_seconds{model="llama",priority="normal",key=""}'] < 20
    replace_workers(gateway.nginx.workers)
    for future in waiting:
        future.result()
    wait_until(lambda: gateway.metrics()[series] == 0)
