"""Taking a backend out of rotation without cutting a stream, and when it is empty."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Drain:
    """How far a drain has come."""

    in_flight: float
    done: bool
    reason: str


def progress(in_flight: float, gateways: int) -> Drain:
    """The drain of a backend on which the gateways' leases hold `in_flight` requests. With no lease at hand
    (no gateway runs, or Redis is away) it is not called done."""
    if gateways == 0:
        return Drain(in_flight, False, "draining: no gateway reports, so nobody knows what is in flight")
    if in_flight > 0:
        still_run = "request still runs" if in_flight == 1 else "requests still run"
        return Drain(in_flight, False, f"draining: {in_flight:g} {still_run}")
    return Drain(0, True, "drained: nothing is in flight")
