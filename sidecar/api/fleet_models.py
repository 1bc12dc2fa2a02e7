"""What is out of the ordinary with a model, in short: the breaker's levels, burst mode, who waits."""

from __future__ import annotations

from pydantic import BaseModel, Field

from sidecar.control.model import ModelDecisions
from sidecar.control_plane import ControlPlane

RESTARTING = "level 3: a backend is being restarted for want of memory"


class FleetModel(BaseModel):
    """One model in short."""

    level: int = Field(description="the highest level of the breaker that holds; 0: none")
    level_reasons: list[str] = Field(description="of each level that holds: what it does, and why")
    burst: bool = Field(description="burst mode: answers are kept short")
    burst_reason: str = Field(description="empty without")
    fallback: str | None = Field(
        description="model that answers in its place, from backends of the role `fallback`; null: none does"
    )
    waiting: int | None = Field(
        description="requests that wait for it; null: the gateways could not be asked"
    )
    longest_wait_ms: float | None = Field(description="of those that wait; null where nobody does")
    unusual: str = Field(description="all of that in words; empty where all is as usual")


def fleet_models(plane: ControlPlane) -> dict[str, FleetModel]:
    """Every model that a backend serves, by public name."""
    return {
        name: fleet_model(model, plane.gateways.known, _fallback(plane, name, model))
        for name, model in sorted(plane.loop.models.items())
    }


def fleet_model(model: ModelDecisions, leases_known: bool, fallback: str | None) -> FleetModel:
    """One model. `leases_known` tells whether the gateways' word on who waits holds; `fallback` is the model
    that answers in its place."""
    reasons = [*model.breaker.reasons, *([RESTARTING] if model.level == 3 else [])]
    if model.quorum.fallback.on:
        reasons.append(f"{model.quorum.reason}" + (f", with {fallback}" if fallback else ""))
    waiting = model.load.waiting.depth if leases_known else None
    longest = model.load.waiting.longest() if waiting else None
    words = [*reasons, model.burst.reason]
    if longest is not None:
        words.append(f"{waiting} waiting, the longest for {longest / 1000:.1f} s")
    return FleetModel(
        level=model.level,
        level_reasons=reasons,
        burst=model.burst.mode.on,
        burst_reason=model.burst.reason,
        fallback=fallback,
        waiting=waiting,
        longest_wait_ms=longest,
        unusual="; ".join(word for word in words if word),
    )


def _fallback(plane: ControlPlane, name: str, model: ModelDecisions) -> str | None:
    if not model.quorum.fallback.on:
        return None
    configured = plane.fleet.models.get(name)
    return (configured.fallback if configured is not None else None) or name
