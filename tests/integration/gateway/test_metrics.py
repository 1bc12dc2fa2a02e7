"""The gateway's own metrics, as Prometheus reads them."""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from tests.integration.gateway.gateway import Gateway, backend
from tests.integration.servers import RedisServer, wait_until

Publish = Callable[..., None]

REQUESTS = 'tokenweir_requests_total{model="llama",backend="gpu-a",outcome="ok",status="2xx"}'


def serve(gateway: Gateway, count: int) -> None:
    """Lets `count` requests pass, in whichever workers answer."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: gateway.get("hold", ms=10), range(count)))


def test_requests_of_all_workers_are_counted(gateway: Gateway) -> None:
    serve(gateway, 40)
    wait_until(lambda: gateway.metrics().get(REQUESTS) == 40, what="40 requests")
    metrics = gateway.metrics()
    assert metrics['tokenweir_prompt_tokens_total{model="llama",backend="gpu-a"}'] == 4000
    assert metrics['tokenweir_output_tokens_total{model="llama",backend="gpu-a"}'] == 2000
    assert metrics['tokenweir_time_to_first_token_seconds_bucket{model="llama",le="0.01"}'] == 40
    assert metrics['tokenweir_request_seconds_count{model="llama"}'] == 40
    assert metrics['tokenweir_request_seconds_bucket{model="llama",le="0.05"}'] == 0
    assert metrics['tokenweir_request_seconds_bucket{model="llama",le="+Inf"}'] == 40
    assert abs(metrics['tokenweir_request_seconds_sum{model="llama"}'] - 4) < 1e-6


def test_counters_survive_a_reload(gateway: Gateway) -> None:
    serve(gateway, 10)
    gateway.nginx.reload()
    wait_until(lambda: gateway.metrics().get(REQUESTS) == 10)
    serve(gateway, 5)
    wait_until(lambda: gateway.metrics().get(REQUESTS) == 15)


def test_the_text_is_what_prometheus_reads(gateway: Gateway) -> None:
    serve(gateway, 3)
    families = {family.name: family for family in text_string_to_metric_families(gateway.get("metrics").text)}
    assert families["tokenweir_requests"].type == "counter"
    assert families["tokenweir_wait_seconds"].type == "histogram"
    assert families["tokenweir_inflight"].type == "gauge"
    assert all(family.documentation for family in families.values())


def test_label_values_are_escaped(gateway: Gateway, publish: Publish) -> None:
    publish(sequence=2, backends=[backend("gpu-a", models={'a "b\\c': "x"})])
    gateway.wait_for("snapshot", 2)
    assert 'tokenweir_queue_depth{model="a \\"b\\\\c",priority="low"} 0' in gateway.get("metrics").text


def test_the_state_is_shown(gateway: Gateway) -> None:
    metrics = gateway.metrics()
    assert metrics['tokenweir_policy{policy="predictive"}'] == 1
    assert metrics['tokenweir_document_version{document="settings"}'] == 1
    assert metrics["tokenweir_redis_up"] == 1
    assert metrics["tokenweir_workers"] == 2
    assert 0 <= metrics["tokenweir_snapshot_age_seconds"] < 60


def test_an_ejection_is_counted_and_told_in_the_lease(gateway: Gateway, redis_server: RedisServer) -> None:
    for _ in range(3):
        gateway.get("fail", backend="gpu-b", why="connect")
    assert gateway.metrics()['tokenweir_backend_ejected{backend="gpu-b"}'] == 1
    series = 'tokenweir_ejections_total{backend="gpu-b",why="connect"}'
    wait_until(lambda: gateway.metrics().get(series) == 1)

    def ejected() -> object:
        lease = redis_server.client().get("tw:gateway:gw-1")
        return json.loads(lease)["ejected"] == {"gpu-b": "connect"}

    wait_until(ejected)
