"""A sidecar that only publishes: a fixed fleet, kept fresh in Redis by a process that costs next to nothing.

Run as `python -m bench.servers.publisher REDIS-URL MODEL PORT...`. The overhead bench measures
the gateway's hot path, and two cores have no room for a Python consumer of 20,000 completion
records per second beside it.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time

import redis

from tokenweir.contract import names
from tokenweir.contract.records import (
    Backend,
    Cost,
    Document,
    ModelSettings,
    ModelStats,
    Settings,
    Snapshot,
    State,
    Stats,
)

CAPACITY = 1_000_000


def _backend(port: int, model: str) -> Backend:
    return Backend(
        id=f"engine-{port}",
        host="127.0.0.1",
        port=port,
        host_header=f"127.0.0.1:{port}",
        models={model: model},
        state=State.READY,
        engine="vllm",
        memory=0.2,
        memory_age_ms=0,
        load=0,
        load_age_ms=0,
        capacity=CAPACITY,
        context=131_072,
        cost=Cost(prefill=0.02, base=6, per_sequence=0.05, per_kv_token=2e-5),
        low=96,
        high=24,
    )


def publish(url: str, model: str, ports: list[int]) -> None:
    """Write the snapshot every 500 ms for ever; settings and stats too, so that an emptied Redis heals."""
    client = redis.Redis.from_url(url)
    fence = int(time.time() * 1000)
    backends = [_backend(port, model) for port in ports]
    for sequence in itertools.count(1):
        documents: dict[str, Document] = {
            names.SETTINGS: Settings(version=1, models=[ModelSettings(name=model)]),
            names.STATS: Stats(version=1, models={model: ModelStats(mean=120, median=60, spread=1)}),
            names.SNAPSHOT: Snapshot(
                fence=fence, sequence=sequence, time_ms=int(time.time() * 1000), backends=backends
            ),
        }
        with contextlib.suppress(redis.RedisError):
            client.mset({key: document.dump() for key, document in documents.items()})
        time.sleep(names.SNAPSHOT_EVERY_MS / 1000)


if __name__ == "__main__":
    publish(sys.argv[1], sys.argv[2], [int(port) for port in sys.argv[3:]])
