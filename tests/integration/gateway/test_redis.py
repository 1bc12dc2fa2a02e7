"""What a gateway makes of a Redis that refuses, is frozen, or is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import redis

from tests.integration.gateway.gateway import Gateway, snapshot
from tests.integration.servers import RedisServer, quickest, replace_workers, wait_until

Publish = Callable[..., None]
StartGateway = Callable[..., Gateway]


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


def test_a_refusal_is_told_once_whichever_worker_polls(gateway: Gateway, redis_server: RedisServer) -> None:
    client = redis_server.client()
    client.delete("tw:gateways")
    client.set("tw:gateways", "x")
    errors = "tokenweir_redis_errors_total"
    wait_until(lambda: gateway.metrics()[errors] >= 5, what="refused commands")
    before = gateway.metrics()[errors]
    replace_workers(gateway.nginx.workers)
    wait_until(lambda: gateway.metrics()[errors] >= before + 5, what="those that another worker had refused")
    assert gateway.nginx.error_log().count("Redis refused a command") == 1
