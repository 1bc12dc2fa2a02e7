"""Routes: alive, and ready."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import BaseModel

from sidecar.api.plane import Plane
from sidecar.clock import monotonic_ms
from tokenweir.contract import names

router = APIRouter(tags=["probes"])


class Probe(BaseModel):
    """The answer of a probe."""

    status: str
    reason: str = ""


@router.get("/healthz", summary="Alive")
async def healthz() -> Probe:
    return Probe(status="ok")


@router.get("/readyz", summary="Publishing, or standing by for the one that publishes", responses={503: {}})
async def readyz(plane: Plane, response: Response) -> Probe:
    reason = ""
    if plane.redis.error is not None:
        reason = f"Redis: {plane.redis.error}"
    elif plane.leader.leading:
        at = plane.publisher.published_at
        if at is None or monotonic_ms() - at > names.SNAPSHOT_STALE_MS:
            reason = "leading, but nothing was published lately"
    elif not plane.leader.holder:
        reason = "no sidecar leads"
    if reason:
        response.status_code = 503
        return Probe(status="not ready", reason=reason)
    return Probe(status="leading" if plane.leader.leading else "standing by")
