"""What a gateway knows follows Redis, and survives without it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.integration.gateway.gateway import Gateway, backend, settings, snapshot
from tests.integration.servers import RedisServer, quickest, wait_until

Publish = Callable[..., None]
StartGateway = Callable[..., Gateway]


def kept(gateway: Gateway, document: str) -> list[Path]:
    """The copies of a document on disk: it has two files, which are written in turn."""
    paths = [gateway.nginx.folder / f"{document}.{suffix}" for suffix in "ab"]
    return [path for path in paths if path.stat().st_size > 0]


def test_a_gateway_follows_the_snapshot_and_the_settings(gateway: Gateway) -> None:
    known = gateway.json("state")
    assert known["backends"] == ["gpu-a", "gpu-b"]
    assert known["settings"]["limits"]["tries"] == 3
    assert (known["fence"], known["sequence"]) == (1, 1)


def test_every_worker_applies_a_new_snapshot_within_a_moment(gateway: Gateway, publish: Publish) -> None:
    numbers = itertools.count(2)

    def follow() -> float:
        number = next(numbers)
        publish(sequence=number, policy="round_robin", level=2, burst=True)
        began = time.monotonic()
        gateway.wait_for("snapshot", number)
        return time.monotonic() - began

    assert quickest(follow, enough=1) < 1
    known = gateway.json("state")
    assert (known["policy"], known["level"], known["burst"]) == ("round_robin", 2, True)


def test_a_snapshot_that_does_not_move_on_becomes_stale_and_level_and_burst_fall(
    gateway: Gateway, publish: Publish
) -> None:
    publish(sequence=2, level=3, burst=True)
    seen = []

    def stale() -> bool:
        seen.append(gateway.json("state"))
        return bool(seen[-1]["stale"])

    wait_until(stale, what="staleness")
    of_the_new = [known for known in seen if known["sequence"] == 2]
    assert len(of_the_new) > 1
    assert all(known["stale"] == (known["age_ms"] > 3000) for known in of_the_new)
    assert all((known["level"], known["burst"]) == (3, True) for known in of_the_new if not known["stale"])
    assert (seen[-1]["level"], seen[-1]["burst"]) == (0, False)
    publish(sequence=3)
    wait_until(lambda: not gateway.json("state")["stale"], what="freshness")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "json"),
        ("[]", "schema"),
        (snapshot(1, 2, schema=9), "schema"),
        (snapshot(1, 2, level=7), "value"),
        (snapshot(1, 2, backends=[backend("gpu-a", weight=-1)]), "value"),
        (snapshot(1, 2, backends=[backend("gpu-a"), backend("gpu-a")]), "value"),
        (snapshot(1, 2, backends=[backend("gpu-a", host="no address")]), "value"),
    ],
    ids=["broken", "list", "schema", "level", "weight", "twice", "host"],
)
def test_a_bad_snapshot_is_refused_and_counted_once_and_the_old_one_is_kept(
    gateway: Gateway, redis_server: RedisServer, text: str, reason: str
) -> None:
    redis_server.client().set("tw:snapshot", text)
    series = f'tokenweir_documents_refused_total{{document="snapshot",reason="{reason}"}}'
    wait_until(lambda: series in gateway.metrics(), what=series)
    time.sleep(0.5)
    assert gateway.metrics()[series] == 1
    assert gateway.json("state")["backends"] == ["gpu-a", "gpu-b"]
    assert gateway.nginx.error_log().count("refused the snapshot") == 1


def test_what_several_workers_refuse_is_counted_once_until_a_good_one_comes(
    gateway: Gateway, publish: Publish
) -> None:
    """A worker that polled and was held up may still be at a text when the next has taken over."""
    bad = snapshot(1, 2, level=7)
    series = 'tokenweir_documents_refused_total{document="snapshot",reason="value"}'
    seen: set[int] = set()

    def in_both() -> bool:
        answer = gateway.offer("snapshot", bad)
        assert "new" not in answer
        assert answer.get("reason") == (None if seen else "value")
        seen.add(answer["pid"])
        return len(seen) == 2

    wait_until(in_both, what="both workers to refuse it")
    assert gateway.metrics()[series] == 1
    publish(sequence=3)
    gateway.wait_for("snapshot", 3)
    assert gateway.offer("snapshot", bad)["reason"] == "value"
    assert gateway.metrics()[series] == 2


def test_an_older_document_that_a_slow_worker_published_gives_way_to_the_one_in_redis(
    gateway: Gateway, redis_server: RedisServer
) -> None:
    redis_server.client().set("tw:settings", settings(version=2, limits={"tries": 5}))
    gateway.wait_for("settings", 2)
    assert gateway.offer("settings", settings(version=1))["new"]
    wait_until(lambda: gateway.json("published", name="settings")["number"] == 2, what="those in Redis")


def test_bad_settings_are_refused_and_the_old_ones_are_kept(
    gateway: Gateway, redis_server: RedisServer
) -> None:
    redis_server.client().set("tw:settings", settings(version=2, limits={"tries": 99}))
    series = 'tokenweir_documents_refused_total{document="settings",reason="value"}'
    wait_until(lambda: series in gateway.metrics(), what=series)
    assert gateway.json("state")["settings"]["version"] == 1
    assert "settings.limits.tries: 99 is out of range" in gateway.nginx.error_log()


def test_changed_settings_are_followed(gateway: Gateway, redis_server: RedisServer) -> None:
    redis_server.client().set("tw:settings", settings(version=2, limits={"tries": 5}))
    gateway.wait_for("settings", 2)
    assert gateway.json("state")["settings"]["limits"]["tries"] == 5


def test_a_command_that_redis_refuses_is_told_once_and_the_connection_given_up(
    gateway: Gateway, redis_server: RedisServer
) -> None:
    client = redis_server.client()
    client.delete("tw:stats", "tw:gateways")
    connections = client.info("stats")["total_connections_received"]
    client.lpush("tw:stats", "x")
    client.set("tw:gateways", "x")
    errors = "tokenweir_redis_errors_total"
    wait_until(lambda: gateway.metrics()[errors] >= 20, what="refused commands")
    assert gateway.nginx.error_log().count("Redis refused a command") == 1, "both are of the wrong type"
    assert client.info("stats")["total_connections_received"] >= connections + 10
    client.delete("tw:stats", "tw:gateways")
    client.set("tw:snapshot", snapshot(1, 9))
    wait_until(lambda: gateway.json("state")["sequence"] == 9, what="the next snapshot")


def test_a_redis_that_answers_by_errors_alone_is_not_up(gateway: Gateway, redis_server: RedisServer) -> None:
    redis_server.client().acl_setuser("admin", enabled=True, nopass=True, keys="*", commands=["+@all"])
    admin = redis.Redis(port=redis_server.port, username="admin", password="any")
    admin.acl_setuser("default", enabled=True, nopass=True, keys="*", commands=["-@all"])
    wait_until(lambda: gateway.metrics()["tokenweir_redis_up"] == 0, what="the gauge")
    assert gateway.json("state")["backends"] == ["gpu-a", "gpu-b"]
    wait_until(lambda: "Redis does not answer" in gateway.nginx.error_log(), what="a line in the log")
    admin.acl_setuser("default", enabled=True, nopass=True, keys="*", commands=["+@all"])
    wait_until(lambda: gateway.metrics()["tokenweir_redis_up"] == 1, what="the gauge")


def test_a_deposed_leaders_snapshot_is_refused(gateway: Gateway, redis_server: RedisServer) -> None:
    client = redis_server.client()
    client.set("tw:snapshot", snapshot(5, 1))
    wait_until(lambda: gateway.json("state")["fence"] == 5)
    client.set("tw:snapshot", snapshot(4, 99))
    series = 'tokenweir_documents_refused_total{document="snapshot",reason="lower fence"}'
    wait_until(lambda: series in gateway.metrics(), what=series)
    assert gateway.json("state")["fence"] == 5
    client.set("tw:snapshot", snapshot(6, 1))
    wait_until(lambda: gateway.json("state")["fence"] == 6)


def test_an_emptied_redis_does_not_lock_the_gateway_out(gateway: Gateway, redis_server: RedisServer) -> None:
    client = redis_server.client()
    client.flushall()
    time.sleep(0.3)
    assert gateway.json("state")["backends"] == ["gpu-a", "gpu-b"]
    client.set("tw:snapshot", snapshot(2, 1, backends=[backend("gpu-c")]))
    wait_until(lambda: gateway.json("state")["backends"] == ["gpu-c"])


def test_redis_away_is_logged_once_and_the_gateway_goes_on(
    gateway: Gateway, redis_server: RedisServer, publish: Publish
) -> None:
    redis_server.stop()
    wait_until(lambda: gateway.metrics()["tokenweir_redis_up"] == 0, what="the gauge")

    def errors() -> list[str]:
        return [line for line in gateway.nginx.error_log().splitlines() if "[error]" in line]

    # One that was just being read from breaks in another way than those that are not made any more.
    wait_until(lambda: any("connect: connection refused" in line for line in errors()), what="the reason")
    told = errors()
    time.sleep(2)
    assert gateway.json("state")["backends"] == ["gpu-a", "gpu-b"]
    assert gateway.get("hold", ms=10).status_code == 200
    assert errors() == told
    reasons = [line.partition("what is known: ")[2] for line in told if "Redis does not answer" in line]
    assert len(reasons) == len(set(reasons))

    redis_server.start()
    publish(fence=1, sequence=2)
    wait_until(lambda: gateway.json("state")["sequence"] == 2, what="the new snapshot")
    wait_until(lambda: gateway.metrics()["tokenweir_redis_up"] == 1, what="the gauge")


def test_a_frozen_redis_holds_nothing_up(
    gateway: Gateway, redis_server: RedisServer, publish: Publish
) -> None:
    redis_server.freeze()
    wait_until(lambda: gateway.metrics()["tokenweir_redis_up"] == 0, what="the gauge")

    def serve() -> float:
        began = time.monotonic()
        assert gateway.get("hold", ms=10).status_code == 200
        return time.monotonic() - began

    assert quickest(serve, enough=0.25) < 0.25
    redis_server.thaw()
    wait_until(lambda: gateway.metrics()["tokenweir_redis_up"] == 1, what="the gauge")


def test_another_worker_polls_when_the_one_that_polled_is_killed(gateway: Gateway, publish: Publish) -> None:
    for number in range(2, 5):
        for pid in gateway.nginx.workers():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(gateway.nginx.workers()) == 2)
        publish(sequence=number)
        gateway.wait_for("snapshot", number)


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


def test_after_a_reload_the_new_workers_know_the_snapshot_and_its_age(gateway: Gateway) -> None:
    time.sleep(1)
    gateway.nginx.reload()
    known = gateway.json("state")
    assert known["backends"] == ["gpu-a", "gpu-b"]
    assert known["age_ms"] > 1000


def test_a_gateway_logs_in_as_its_redis_user(
    start_gateway: StartGateway, redis_server: RedisServer, publish: Publish, tmp_path: Path
) -> None:
    publish()
    client = redis_server.client()
    client.acl_setuser(
        "gateway",
        enabled=True,
        passwords=["+secret"],
        keys=["tw:*"],
        commands=[
            *("+get", "+getrange", "+mget", "+set", "+zadd", "+zrevrange", "+zremrangebyscore"),
            *("+xadd", "+xrange", "+xtrim", "+time"),
        ],
    )
    client.acl_setuser("default", enabled=False, reset=False)
    secret = tmp_path / "password"
    secret.write_text("secret\n")
    gateway = start_gateway(redis={"user": "gateway", "password_file": str(secret)})
    wait_until(lambda: gateway.json("state").get("backends"), what="the snapshot")
    gateway.get("emit", count=3)
    wait_until(lambda: gateway.metrics()["tokenweir_events_sent_total"] == 3)
    assert gateway.metrics()["tokenweir_redis_errors_total"] == 0


def test_a_wrong_redis_password_is_told(
    start_gateway: StartGateway, redis_server: RedisServer, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("wrong")
    gateway = start_gateway(redis={"user": "gateway", "password_file": str(secret)})
    wait_until(lambda: "AUTH: WRONGPASS" in gateway.nginx.error_log())
    assert gateway.metrics()["tokenweir_redis_up"] == 0


def test_a_missing_permission_is_told_once_and_the_rest_goes_on(
    start_gateway: StartGateway, redis_server: RedisServer, publish: Publish
) -> None:
    publish()
    redis_server.client().acl_setuser(
        "default", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-zadd"]
    )
    gateway = start_gateway()
    wait_until(lambda: gateway.json("state").get("backends"), what="the snapshot")
    time.sleep(0.5)
    assert gateway.nginx.error_log().count("Redis refused a command") == 1


def test_a_large_snapshot_is_followed(gateway: Gateway, publish: Publish) -> None:
    """Of a large document only the head is compared at each poll."""
    fleet = [backend(f"gpu-{number}") for number in range(600)]
    for number in range(2, 5):
        publish(sequence=number, backends=fleet)
        gateway.wait_for("snapshot", number)
