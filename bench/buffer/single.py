"""What one scripted backend shows: the order to the place, the time of waking, memory, reloads."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from bench.buffer.client import Answer, ask
from bench.buffer.witness import MODEL, Stage, stage
from bench.servers import cpu

BODY = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}).encode()
LOOK_S = 0.005


def _body(size: int) -> bytes:
    """A chat body of so many bytes."""
    document = {"model": MODEL, "messages": [{"role": "user", "content": ""}], "max_tokens": 4}
    document["messages"] = [{"role": "user", "content": "x" * (size - len(json.dumps(document)))}]
    return json.dumps(document).encode()


def _depth(at: Stage) -> float:
    series = at.gateway.metrics().items()
    return sum(value for name, value in series if name.startswith("tokenweir_queue_depth"))


async def _queued(at: Stage, count: int) -> None:
    while await asyncio.to_thread(_depth, at) < count:  # noqa: ASYNC110  (it is another process's)
        await asyncio.sleep(LOOK_S)


def _id(number: int) -> dict[str, str]:
    return {"X-Request-Id": f"request-{number:06d}"}


async def order(folder: Path, count: int) -> dict[str, Any]:
    """Equal requests arrive one after the other at two workers, and are served one at a time: who is served
    before one that came earlier? Neighbours are told apart from others."""
    async with stage(folder, concurrency=1, delay=0.002) as at:
        asking = []
        for number in range(count):
            asking.append(asyncio.create_task(ask(at.gateway.port, BODY, _id(number))))
            # On a busy machine a worker may read a connection late: the next comes when this one waits.
            await (_queued(at, number) if number else at.witness.first.wait())
        at.witness.open.set()
        answers = await asyncio.gather(*asking)
        metrics = await _settled(at, count - 1)
    places = [int(name.rsplit("-", 1)[1]) for _, name in at.witness.came]
    displaced = [abs(place - number) for number, place in enumerate(places)]
    # The place of an answer's end to the next request's arrival at the backend, one at a time.
    gaps = sorted(
        1000 * (came - ended) for (came, _), ended in zip(at.witness.came[1:], at.witness.ended, strict=False)
    )
    return {
        "requests": count,
        "answered": sum(answer.status == 200 for answer in answers),
        "inversions": sum(by > 1 for by in displaced),
        "neighbours": sum(by == 1 for by in displaced),
        "wake_ms_p99": percentile_of_buckets(metrics, "tokenweir_queue_wake_seconds", 0.99),
        "handover_ms_p50": round(gaps[len(gaps) // 2], 2),
        "handover_ms_p99": round(gaps[int(0.99 * len(gaps))], 2),
    }


async def _settled(at: Stage, count: int) -> dict[str, float]:
    """The metrics, once the workers have added up what they counted."""
    for _ in range(40):
        metrics = await asyncio.to_thread(at.gateway.metrics)
        waits = sum(v for name, v in metrics.items() if name.startswith("tokenweir_queue_wait_seconds_count"))
        if waits >= count:
            break
        await asyncio.sleep(0.1)
    return metrics


def percentile_of_buckets(metrics: dict[str, float], name: str, share: float) -> float | None:
    """A percentile of a histogram in ms, spread evenly within its bucket; None where nothing was counted."""
    buckets: dict[float, float] = {}
    for series, value in metrics.items():
        if series.startswith(f"{name}_bucket"):
            upper = float(series.rpartition('le="')[2].rstrip('"}'))
            buckets[upper] = buckets.get(upper, 0) + value
    total = buckets.get(float("inf"), 0)
    if not total:
        return None
    below_bound, below = 0.0, 0.0
    for bound, count in sorted(buckets.items()):
        if count >= share * total:
            if bound == float("inf"):
                return 1000 * below_bound
            part = (share * total - below) / (count - below)
            return round(1000 * (below_bound + part * (bound - below_bound)), 3)
        below_bound, below = bound, count
    return None


def _memory(at: Stage) -> int:
    """Bytes of the gateway's processes, what they share counted once."""
    total = 0
    for process in cpu.tree(at.gateway.pid):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += 1024 * int(line.split()[1])
    return total


async def memory(folder: Path, count: int) -> dict[str, Any]:
    """So many requests of 2 KB wait: what do they cost, and does it come back?"""
    body = _body(2048)
    async with stage(folder, concurrency=1) as at:
        at.witness.open.set()
        await ask(at.gateway.port, body, {})
        at.witness.open.clear()
        # The first look at the metrics goes over all tables, whose pages are there from then on.
        await asyncio.to_thread(at.gateway.metrics)
        before = _memory(at)
        asking = []
        for number in range(count + 1):
            asking.append(asyncio.create_task(ask(at.gateway.port, body, _id(number))))
            if number % 50 == 0:
                await asyncio.sleep(0.02)
        await _queued(at, count)
        full = _memory(at)
        at.witness.open.set()
        answers = await asyncio.gather(*asking)
    return {
        "waiters": count,
        "answered": sum(answer.status == 200 for answer in answers),
        "bytes_per_waiter": round((full - before) / count),
        "memory_mib": round((full - before) / 2**20, 1),
    }


async def reload(folder: Path, count: int) -> dict[str, Any]:
    """Reloads while requests wait and while they are served: is one lost?"""
    async with stage(folder, concurrency=4, delay=0.02) as at:
        asking = [asyncio.create_task(ask(at.gateway.port, BODY, _id(k))) for k in range(count)]
        await _queued(at, count - 4)
        at.gateway.send(signal.SIGHUP)
        await asyncio.sleep(1)
        asking += [asyncio.create_task(ask(at.gateway.port, BODY, _id(count + k))) for k in range(count)]
        await _queued(at, 2 * count - 4)
        at.witness.open.set()
        await asyncio.sleep(0.5)
        at.gateway.send(signal.SIGHUP)
        answers: list[Answer] = await asyncio.gather(*asking)
    return {"requests": 2 * count, "lost_on_reload": sum(answer.status != 200 for answer in answers)}
