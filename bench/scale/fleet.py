"""The fleet of the scale bench, as a snapshot that looks like one of a mixed fleet in service."""

from __future__ import annotations

import random
import time

from tokenweir.contract.records import Backend, Cost, Foreign, ModelControl, Role, Snapshot, State

MODEL = "llama-3.1-8b"
KINDS = {"A100-80G": 1.0, "H100": 0.6, "L4": 5.0}
"""GPU -> how much slower than an A100."""


def backends(count: int, seed: int) -> list[Backend]:
    """Backends of several speeds, each with the reasons that the sidecar gives."""
    source = random.Random(seed)
    return [_backend(number, source) for number in range(count)]


def _backend(number: int, source: random.Random) -> Backend:
    gpu, slower = source.choice(sorted(KINDS.items()))
    use = source.uniform(0.1, 0.7)
    speed = slower * source.uniform(0.95, 1.05)
    return Backend(
        id=f"engine-{number:04d}",
        host=f"10.0.{number // 250}.{number % 250 + 1}",
        port=8000,
        host_header=f"10.0.{number // 250}.{number % 250 + 1}:8000",
        models={MODEL: MODEL},
        state=State.READY,
        role=Role.ACTIVE,
        precision="fp16",
        engine="vllm",
        memory=use,
        memory_age_ms=source.uniform(0, 500),
        load=source.randrange(20),
        load_age_ms=source.uniform(0, 500),
        capacity=400_000,
        context=131_072,
        cost=Cost(
            prefill=0.07 * speed, base=11 * speed, per_sequence=0.05 * speed, per_kv_token=1e-4 * speed
        ),
        # One in twenty has requests that came past the gateways.
        foreign=Foreign(requests=2, tokens=3000) if source.random() < 0.05 else Foreign(),
        low=120 * (1 - use),
        high=30 * (1 - use),
        progress_age_ms=source.uniform(0, 500),
        reasons=[
            "state: ready: answers and serves",
            f"memory: {use:.0%} of the KV memory, as the engine tells",
            f"scores: low {120 * (1 - use):.1f}, high {30 * (1 - use):.1f}",
            "capacity: 400000 tokens, as the engine tells",
            f"cost: {speed:.2f} times facts of 1 x {gpu}, {MODEL}, fp16, fitted to 1200 looks, +-2%",
        ],
    )


def snapshot(fleet: list[Backend], sequence: int) -> Snapshot:
    """A snapshot of them."""
    now = int(time.time() * 1000)
    return Snapshot(
        fence=1, sequence=sequence, time_ms=now, backends=fleet, models={MODEL: ModelControl(load=0.4)}
    )
