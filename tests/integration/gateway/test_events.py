"""Every completion record reaches Redis once, or is counted as lost."""

from __future__ import annotations

import concurrent.futures
import json
import time
from collections import Counter

import pytest
import redis

from tests.integration.gateway.gateway import Gateway
from tests.integration.servers import RedisServer, replace_workers, wait_until
from tokenweir.contract import names
from tokenweir.contract.records import Completion


class Stream:
    """What a consumer of `tw:completions` reads."""

    def __init__(self, server: RedisServer) -> None:
        self.client = server.client()

    def batches(self) -> list[dict[str, str]]:
        """Entries in order."""
        return [fields for _, fields in self.client.xrange("tw:completions")]

    def records(self) -> list[dict[str, object]]:
        """Records of all batches."""
        return [record for fields in self.batches() for record in json.loads(fields["batch"])]

    def lost(self) -> int:
        """Records that the sources made but did not bring, told from the gaps.

        Batches that an exiting worker hands over to others may arrive in any order.
        """
        lost, expected = 0, Counter[str]()
        for fields in sorted(self.batches(), key=lambda fields: int(fields["first"])):
            lost += int(fields["first"]) - expected[fields["source"]]
            expected[fields["source"]] = int(fields["first"]) + len(json.loads(fields["batch"]))
        return lost


@pytest.fixture
def stream(redis_server: RedisServer) -> Stream:
    return Stream(redis_server)


def emit(gateway: Gateway, requests: int, count: int) -> None:
    """Makes `requests * count` records, in whichever workers answer."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: gateway.get("emit", count=count), range(requests)))


def test_a_record_is_a_completion_of_the_contract(gateway: Gateway, stream: Stream) -> None:
    gateway.get("emit", count=1)
    wait_until(lambda: len(stream.records()) == 1)
    record = Completion.model_validate(stream.records()[0])
    assert (record.gateway, record.model, record.total_ms) == ("gw-1", "llama", 12.5)
    assert abs(record.time_ms - time.time() * 1000) < 60_000


def test_all_records_of_all_workers_arrive_exactly_once(gateway: Gateway, stream: Stream) -> None:
    emit(gateway, 20, 100)
    wait_until(lambda: len(stream.records()) >= 2000)
    assert len({record["id"] for record in stream.records()}) == len(stream.records()) == 2000
    assert stream.lost() == 0
    wait_until(lambda: gateway.metrics()["tokenweir_events_sent_total"] == 2000)
    assert gateway.metrics()["tokenweir_events_dropped_total"] == 0


def test_a_stream_that_nobody_reads_is_bounded_in_bytes(gateway: Gateway, stream: Stream) -> None:
    emit(gateway, 1, 256)
    wait_until(lambda: len(stream.records()) == 256)
    fields = max(stream.batches(), key=lambda fields: len(fields["batch"]))
    for _ in range(names.COMPLETIONS_BYTES * 3 // 2 // len(fields["batch"])):
        stream.client.xadd("tw:completions", fields)
    assert stream.client.memory_usage("tw:completions", samples=0) > 1.4 * names.COMPLETIONS_BYTES
    emit(gateway, 8, 256)
    wait_until(lambda: gateway.metrics()["tokenweir_events_sent_total"] == 9 * 256)
    assert stream.client.memory_usage("tw:completions", samples=0) < 1.2 * names.COMPLETIONS_BYTES


def test_nothing_is_lost_over_reloads(gateway: Gateway, stream: Stream) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        held = [pool.submit(gateway.get, "hold", ms=100 + 60 * k) for k in range(24)]
        for _ in range(3):
            gateway.nginx.reload()
        assert [future.result().status_code for future in held] == [200] * 24
    wait_until(lambda: len(stream.records()) == 24, what="24 records")
    assert stream.lost() == 0


def test_nothing_is_lost_when_the_gateway_is_stopped_gracefully(gateway: Gateway, stream: Stream) -> None:
    emit(gateway, 4, 300)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        held = [pool.submit(gateway.get, "hold", ms=6000) for _ in range(8)]
        wait_until(lambda: gateway.json("own")["gpu-a"]["n"] == 8, what="eight requests")
        gateway.nginx.stop(graceful=True)
        assert [future.result().status_code for future in held] == [200] * 8
    assert len(stream.records()) == 1208
    assert stream.lost() == 0


def test_records_wait_while_redis_is_away(
    gateway: Gateway, stream: Stream, redis_server: RedisServer
) -> None:
    redis_server.stop()
    emit(gateway, 10, 100)
    time.sleep(1)
    assert stream_is_away(stream)
    redis_server.start()
    wait_until(lambda: len(stream.records()) == 1000)
    assert stream.lost() == 0


def stream_is_away(stream: Stream) -> bool:
    """Whether Redis does not answer."""
    try:
        stream.client.ping()
    except redis.ConnectionError:
        return True
    return False


def test_records_beyond_the_bound_are_dropped_and_counted_on_both_sides(
    gateway: Gateway, stream: Stream, redis_server: RedisServer
) -> None:
    redis_server.stop()
    emit(gateway, 30, 1000)
    redis_server.start()
    wait_until(lambda: gateway.metrics()["tokenweir_events_sent_total"] > 0)
    gateway.get("emit", count=1)

    def complete() -> bool:
        metrics = gateway.metrics()
        sent, dropped = metrics["tokenweir_events_sent_total"], metrics["tokenweir_events_dropped_total"]
        return sent + dropped == 30_001

    wait_until(complete, what="every record sent or counted as dropped")
    dropped = gateway.metrics()["tokenweir_events_dropped_total"]
    assert dropped > 0
    wait_until(lambda: len(stream.records()) == 30_001 - dropped, what="the sent records")
    wait_until(lambda: len({f["source"] for f in stream.batches()}) == 2)

    def told() -> bool:
        # A worker's last gap shows with its next record, and any worker may answer.
        emit(gateway, 10, 1)
        return stream.lost() == dropped

    wait_until(told, what="the gaps")


def test_what_a_worker_could_not_send_before_it_exited_is_sent_by_the_others(
    gateway: Gateway, stream: Stream, redis_server: RedisServer
) -> None:
    redis_server.stop()
    emit(gateway, 10, 50)
    gateway.nginx.reload()
    wait_until(lambda: len(gateway.nginx.workers()) == 2, what="the old workers' end")
    redis_server.start()
    wait_until(lambda: len(stream.records()) == 500)
    assert stream.lost() == 0


def test_records_go_on_after_a_worker_was_killed(gateway: Gateway, stream: Stream) -> None:
    emit(gateway, 10, 10)
    wait_until(lambda: len(stream.records()) == 100)
    replace_workers(gateway.nginx.workers)
    emit(gateway, 10, 10)
    wait_until(lambda: len(stream.records()) == 200)
    assert stream.lost() == 0
