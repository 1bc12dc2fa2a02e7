"""What a gateway knows follows Redis, and survives without it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest

from tests.integration.gateway.gateway import Gateway, backend, settings, snapshot
from tests.integration.servers import RedisServer, quickest, replace_workers, wait_until

Publish = Callable[..., None]


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


def test_another_worker_polls_when_the_one_that_polled_is_killed(gateway: Gateway, publish: Publish) -> None:
    for number in range(2, 5):
        replace_workers(gateway.nginx.workers)
        publish(sequence=number)
        gateway.wait_for("snapshot", number)


def test_after_a_reload_the_new_workers_know_the_snapshot_and_its_age(gateway: Gateway) -> None:
    time.sleep(1)
    gateway.nginx.reload()
    known = gateway.json("state")
    assert known["backends"] == ["gpu-a", "gpu-b"]
    assert known["age_ms"] > 1000


def test_a_large_snapshot_is_followed(gateway: Gateway, publish: Publish) -> None:
    """Of a large document only the head is compared at each poll."""
    fleet = [backend(f"gpu-{number}") for number in range(600)]
    for number in range(2, 5):
        publish(sequence=number, backends=fleet)
        gateway.wait_for("snapshot", number)
