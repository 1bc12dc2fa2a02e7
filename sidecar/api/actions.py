"""Route: what was done to engines, newest first."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from sidecar.actuators.audit import Entry
from sidecar.api.known import UNKNOWN, check_known
from sidecar.api.plane import Plane

router = APIRouter(prefix="/api/actions", tags=["actions"])


class ActionsView(BaseModel):
    """The audit log, as far as it is in memory."""

    actuators: dict[str, str] = Field(description="backend -> kind of its actuator; not there: it has none")
    dry_run: list[str] = Field(description="backends on which nothing is really done")
    problems: dict[str, str] = Field(description="backend -> why its actuator cannot be used")
    unwritten: int = Field(description="entries that could not be written to the file")
    entries: list[Entry] = Field(
        description="newest first; an action has one as it begins and one as it ends"
    )


@router.get("", summary="What was done to engines, by which means, why, and how it went", responses=UNKNOWN)
async def actions(
    plane: Plane,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    backend: Annotated[str | None, Query(description="only this backend's")] = None,
) -> ActionsView:
    actuators = plane.actuators
    kinds = actuators.kinds()
    found = [entry for entry in actuators.audit.entries() if backend in {None, entry.backend}]
    check_known(plane, backend, bool(found))
    return ActionsView(
        actuators={backend_id: kind for backend_id, (kind, _) in kinds.items()},
        dry_run=[backend_id for backend_id, (_, dry_run) in kinds.items() if dry_run],
        problems=dict(actuators.problems),
        unwritten=actuators.audit.unwritten,
        entries=found[:limit],
    )
