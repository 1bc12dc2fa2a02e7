"""Routes: weights that are read ahead of a start."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from sidecar.actuators.prefetch import Progress
from sidecar.administration import ConflictError
from sidecar.api.plane import Admin, Plane
from sidecar.api.problems import ProblemAnswer

router = APIRouter(tags=["prefetches"])

ANSWERS: dict[int | str, dict[str, Any]] = {404: {"model": ProblemAnswer}, 409: {"model": ProblemAnswer}}


class PrefetchView(BaseModel):
    """How far the weights of one backend are read."""

    path: str
    files: int
    total_bytes: int
    done_bytes: int
    share: float = Field(description="of what is to be read, 0 to 1")
    bytes_per_second: float
    left_s: float | None = Field(description="at this rate; null while nothing is known")
    finished: bool
    problem: str = Field(description="why it read nothing, or not all; empty without one")


def _view(progress: Progress) -> PrefetchView:
    whole = progress.total_bytes
    return PrefetchView(
        path=progress.path,
        files=progress.files,
        total_bytes=whole,
        done_bytes=progress.done_bytes,
        share=progress.done_bytes / whole if whole else float(progress.finished and not progress.problem),
        bytes_per_second=round(progress.bytes_per_second, 1),
        left_s=None if progress.left_s is None else round(progress.left_s, 1),
        finished=progress.finished,
        problem=progress.problem,
    )


@router.get("/api/prefetches", summary="Weights that are or were read ahead, by backend")
async def list_prefetches(plane: Plane) -> dict[str, PrefetchView]:
    return {name: _view(progress) for name, progress in plane.actuators.prefetches.progress().items()}


@router.post(
    "/api/backends/{backend_id}/prefetch",
    summary="Read a backend's weights into the page cache now",
    status_code=202,
    responses=ANSWERS,
)
async def begin_prefetch(plane: Plane, admin: Admin, backend_id: str) -> dict[str, PrefetchView]:
    """They are read by themselves when the engine is started; this is for before. One under way goes on."""
    admin.backend(backend_id)
    if not plane.actuators.prefetches.begin(backend_id):
        raise ConflictError(f"`weights` of backend {backend_id!r} is not set in tokenweir.yaml")
    admin.tell("prefetch", backend=backend_id)
    return await list_prefetches(plane)
