"""One worker polls at a time, and another takes over at any moment: nothing is lost or made up by that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import httpx

from tests.integration.gateway.gateway import Gateway
from tests.integration.gateway.test_lease import foreign_lease, lease_of, put_lease
from tests.integration.servers import RedisServer, replace_workers, wait_until

StartGateway = Callable[..., Gateway]
Publish = Callable[..., None]

RECORD_BYTES = 14 + len("gpu-a")
MOVES = 100


def moves(server: RedisServer) -> int:
    """How many moves of sessions stand in the stream."""
    entries: Any = server.client().xrange("tw:session:moves")
    return sum(len(fields["moves"]) for _, fields in entries) // RECORD_BYTES


def tell(gateway: Gateway) -> None:
    """Has a worker tell of moves that is not the one that polls."""
    wait_until(lambda: gateway.json("tell", count=MOVES)["told"] == MOVES, what="a worker that does not poll")


def polls(server: RedisServer, count: int, each: Callable[[], None]) -> None:
    """Calls `each` all the time, until the gateway has polled so often."""
    sequences = set[int]()
    with contextlib.suppress(ValueError):
        sequences.add(lease_of(server).sequence)

    def seen() -> bool:
        each()
        sequences.add(lease_of(server).sequence)
        return len(sequences) > count

    wait_until(seen, what=f"{count} polls")


def test_a_move_is_told_by_the_worker_that_made_it_whether_it_polls_or_not(
    start_gateway: StartGateway, redis_server: RedisServer, publish: Publish
) -> None:
    # It polls so rarely that one batch a poll would take long.
    publish()
    gateway = start_gateway(poll_ms=1000)
    gateway.wait_for("snapshot", 1)
    tell(gateway)
    wait_until(lambda: moves(redis_server) == MOVES, what="all moves in Redis")


def test_moves_that_were_told_while_redis_was_away_follow_soon(
    start_gateway: StartGateway, redis_server: RedisServer, publish: Publish
) -> None:
    publish()
    gateway = start_gateway(poll_ms=1000)
    gateway.wait_for("snapshot", 1)
    redis_server.stop()
    tell(gateway)
    redis_server.start()
    publish()
    wait_until(lambda: moves(redis_server) == MOVES, what="all moves in Redis")


def test_what_others_have_in_flight_counts_on_when_another_worker_polls(
    start_gateway: StartGateway, redis_server: RedisServer, publish: Publish
) -> None:
    publish()
    # A Redis that is slow to answer is not away.
    gateway = start_gateway(redis={"read_ms": 10_000, "connect_ms": 10_000})
    put_lease(redis_server, foreign_lease())
    wait_until(lambda: gateway.metrics()["tokenweir_peers"] == 1, what="the other gateway")
    for _ in range(5):
        seen = set[float]()

        def look(seen: set[float] = seen) -> None:
            with contextlib.suppress(httpx.TransportError):
                seen.add(gateway.metrics()["tokenweir_peers"])

        replace_workers(gateway.nginx.workers)
        polls(redis_server, 4, look)
        assert seen == {1}


def test_a_worker_that_dies_while_it_adds_up_the_load_of_others_leaves_nothing_of_it(
    gateway: Gateway, redis_server: RedisServer
) -> None:
    put_lease(redis_server, foreign_lease(backends={}))
    wait_until(lambda: gateway.metrics()["tokenweir_peers"] == 1, what="the other gateway")
    before = set(gateway.nginx.workers())

    def die() -> bool:
        with contextlib.suppress(httpx.TransportError):
            gateway.get("die_in_sums")
        return bool(before - set(gateway.nginx.workers()))

    wait_until(die, what="a dead worker")
    seen = set[float]()
    polls(redis_server, 6, lambda: seen.add(gateway.json("view")["gpu-a"]["n"]))
    assert seen == {0}
