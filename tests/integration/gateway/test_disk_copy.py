"""What a gateway keeps on disk, so that it can start while Redis is away."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.integration.gateway.gateway import Gateway, snapshot
from tests.integration.servers import RedisServer, wait_until

Publish = Callable[..., None]
StartGateway = Callable[..., Gateway]


def kept(gateway: Gateway, document: str) -> list[Path]:
    """The copies of a document on disk: it has two files, which are written in turn."""
    paths = [gateway.nginx.folder / f"{document}.{suffix}" for suffix in "ab"]
    return [path for path in paths if path.exists() and path.stat().st_size > 0]


def test_a_gateway_starts_from_disk_while_redis_is_away_and_calls_it_stale(
    gateway: Gateway, start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    wait_until(lambda: kept(gateway, "snapshot"), what="the copy on disk")
    gateway.nginx.stop()
    redis_server.stop()
    again = start_gateway()
    known = again.json("state")
    assert known["backends"] == ["gpu-a", "gpu-b"]
    assert known["settings"]["version"] == 1
    assert known["stale"]
    assert known["age_ms"] == -1


def test_a_snapshot_from_disk_stays_stale_when_redis_still_holds_the_same(
    gateway: Gateway, start_gateway: StartGateway, publish: Publish
) -> None:
    wait_until(lambda: kept(gateway, "snapshot"), what="the copy on disk")
    gateway.nginx.stop()
    again = start_gateway()
    time.sleep(0.5)
    assert again.json("state")["stale"]
    publish(sequence=2)
    wait_until(lambda: not again.json("state")["stale"])


def test_a_snapshot_from_disk_gives_way_to_a_lower_fence(
    gateway: Gateway, start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    redis_server.client().set("tw:snapshot", snapshot(1000, 1))
    wait_until(lambda: gateway.json("state")["fence"] == 1000)
    wait_until(
        lambda: any('"fence": 1000' in path.read_text() for path in kept(gateway, "snapshot")),
        what="the copy on disk",
    )
    gateway.nginx.stop()
    redis_server.client().set("tw:snapshot", snapshot(7, 1))
    again = start_gateway()
    wait_until(lambda: again.json("state")["fence"] == 7)


def test_what_a_worker_published_before_it_died_is_kept_by_the_one_that_polls_next(
    gateway: Gateway, start_gateway: StartGateway, redis_server: RedisServer, publish: Publish
) -> None:
    wait_until(lambda: kept(gateway, "snapshot"), what="the copy on disk")
    for fence in 5, 6:
        publish(fence=fence)
        wait_until(lambda fence=fence: gateway.json("state")["fence"] == fence)
        for worker in gateway.nginx.workers():
            os.kill(worker, signal.SIGKILL)
        told = f'"fence": {fence}'
        wait_until(
            lambda told=told: any(told in path.read_text() for path in kept(gateway, "snapshot")),
            what="the later copy on disk",
        )
    gateway.nginx.stop()
    redis_server.stop()
    assert start_gateway().json("state")["fence"] == 6


def test_copies_that_were_taken_away_are_made_anew_after_a_reload(gateway: Gateway) -> None:
    for document in "snapshot", "settings":
        wait_until(lambda document=document: kept(gateway, document), what="the copy on disk")
    for path in kept(gateway, "snapshot") + kept(gateway, "settings"):
        path.unlink()
    gateway.nginx.reload()
    for document in "snapshot", "settings":
        wait_until(lambda document=document: kept(gateway, document), what="the new copy on disk")


def test_a_spoiled_file_on_disk_is_not_believed(
    gateway: Gateway, start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    wait_until(lambda: kept(gateway, "snapshot"), what="the copy on disk")
    gateway.nginx.stop()
    redis_server.stop()
    for path in kept(gateway, "snapshot"):
        path.write_bytes(path.read_bytes()[:-10])
    assert start_gateway().json("state").get("backends") is None


def test_workers_of_another_user_keep_the_disk_copy(gateway: Gateway) -> None:
    """Where the tests run as root, nginx's workers run as nobody: they could not make these files."""
    wait_until(lambda: kept(gateway, "settings"), what="the copy on disk")
    path = kept(gateway, "settings")[0]
    header, body = path.read_text().split("\n", 1)
    assert header.startswith("tokenweir 1 ")
    assert json.loads(body)["version"] == 1
    assert path.stat().st_mode & 0o777 == 0o600
