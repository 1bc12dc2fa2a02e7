"""Routes: the last snapshots with their reasons, and the changes of state."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from sidecar.api.known import UNKNOWN, check_known
from sidecar.api.plane import Plane

router = APIRouter(prefix="/api/decisions", tags=["decisions"])


class EventView(BaseModel):
    """A change of a backend's state."""

    time_ms: int
    backend: str
    before: str
    after: str
    reason: str


@router.get("", summary="The last published snapshots, newest first", responses=UNKNOWN)
async def decisions(
    plane: Plane,
    limit: Annotated[int, Query(ge=1, le=32)] = 1,
    backend: Annotated[str | None, Query(description="only this backend of each")] = None,
) -> list[dict[str, Any]]:
    """What this sidecar published while it led; a follower has none."""
    snapshots = [json.loads(text) for text in list(plane.publisher.history)[: -limit - 1 : -1]]
    if backend is not None:
        for snapshot in snapshots:
            snapshot["backends"] = [row for row in snapshot["backends"] if row["id"] == backend]
        check_known(plane, backend, any(snapshot["backends"] for snapshot in snapshots))
    return snapshots


@router.get("/events", summary="Changes of state, newest first", responses=UNKNOWN)
async def events(
    plane: Plane, limit: Annotated[int, Query(ge=1, le=1000)] = 100, backend: str | None = None
) -> list[EventView]:
    found = [event for event in reversed(plane.fleet.events) if backend is None or event.backend == backend]
    check_known(plane, backend, bool(found))
    return [
        EventView(
            time_ms=event.time_ms,
            backend=event.backend,
            before=event.before,
            after=event.after,
            reason=event.reason,
        )
        for event in found[:limit]
    ]
