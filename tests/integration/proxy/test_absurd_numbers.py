"""Requests whose figures are beyond all bounds: what is summed over requests must stay finite."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from tests.integration.proxy.gateway import Gateway, backend, sha256
from tests.integration.servers import wait_until, well_within_a_minute
from tests.integration.upstream import Answer, Upstream, held
from tokenweir.contract.records import Lease

Start = Callable[..., Gateway]
AUTHORIZATION = {"Authorization": "Bearer sk-1"}
KEY = {"id": "team", "sha256": sha256("sk-1"), "requests_per_minute": 1000}


def body(members: bytes) -> bytes:
    return b'{"model":"llama","messages":[{"role":"user","content":"hi"}],%b}' % members


@pytest.mark.parametrize(
    "members",
    [
        b'"min_tokens":1e999',
        b'"min_tokens":1e300,"n":128',
        b'"ignore_eos":true,"max_tokens":9007199254740992,"n":128',
        b'"temperature":-1e999,"top_p":1e999,"thinking_budget":1e999',
    ],
)
def test_they_leave_finite_sums_and_a_lease_that_others_read(
    start_gateway: Start, upstream: Upstream, members: bytes
) -> None:
    gateway = start_gateway([backend(upstream, concurrency=1)], {"keys": [KEY]}, workers=1)
    well_within_a_minute()
    permits = held()
    upstream.answer = Answer(permits=permits)
    first = gateway.open(headers=AUTHORIZATION)
    wait_until(lambda: gateway.inflight() == 1, what="the first request")
    connections = [first]
    connections += [gateway.open(headers=AUTHORIZATION, raw=body(members)) for _ in range(2)]
    wait_until(lambda: gateway.metric("tokenweir_queue_depth") == 2, what="two waiters")
    for _ in connections:
        permits.release()
    for connection in connections:
        answer = connection.getresponse()
        assert answer.status == 200
        assert float(answer.headers["x-tokenweir-predicted-tokens"]) <= 128 * 2**24
    gateway.settle()
    assert [name for name, value in gateway.metrics().items() if not math.isfinite(value)] == []
    wait_until(lambda: "team" in gateway.lease()["keys"], what="the key's use in the lease")
    lease = Lease.model_validate_json(json.dumps(gateway.lease()))
    assert lease.keys["team"].tokens < 2**53
    upstream.answer = Answer()
    assert gateway.post(headers=AUTHORIZATION).status_code == 200
