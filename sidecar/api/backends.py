"""Routes: list, add, change, drain, undrain and remove backends, while everything runs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from sidecar.api.known import UNKNOWN, check_known
from sidecar.api.plane import Admin, Plane
from sidecar.api.problems import ProblemAnswer
from sidecar.api.views import BackendView, backend_view
from sidecar.clock import monotonic_ms
from sidecar.control_plane import ControlPlane
from tokenweir.config.models import BackendConfig

router = APIRouter(prefix="/api/backends", tags=["backends"])

CHANGE: dict[int | str, dict[str, Any]] = {
    **UNKNOWN,
    409: {"model": ProblemAnswer},
    422: {"model": ProblemAnswer},
    507: {"model": ProblemAnswer},
}


def _one(plane: ControlPlane, backend_id: str) -> BackendView:
    check_known(plane, backend_id)
    decisions = {backend.id: backend for backend in plane.fleet.decide(monotonic_ms())}
    return backend_view(plane, plane.fleet.members[backend_id], decisions.get(backend_id))


@router.get("", summary="All backends with what is measured and decided")
async def list_backends(plane: Plane) -> list[BackendView]:
    decisions = {backend.id: backend for backend in plane.fleet.decide(monotonic_ms())}
    return [
        backend_view(plane, member, decisions.get(backend_id))
        for backend_id, member in plane.fleet.members.items()
    ]


@router.get("/{backend_id}", summary="One backend", responses=UNKNOWN)
async def get_backend(plane: Plane, backend_id: str) -> BackendView:
    return _one(plane, backend_id)


@router.post("", summary="Add a backend", status_code=201, responses=CHANGE)
async def add_backend(plane: Plane, admin: Admin, backend: BackendConfig) -> BackendView:
    """The members are those of an entry of `backends` in `tokenweir.yaml`; only `url` is needed. It gets
    requests as soon as it is seen to serve."""
    admin.add(backend)
    return _one(plane, backend.id)


@router.patch("/{backend_id}", summary="Change a backend", responses=CHANGE)
async def change_backend(
    plane: Plane,
    admin: Admin,
    backend_id: str,
    members: Annotated[dict[str, Any], Body(examples=[{"weight": 2, "role": "standby"}])],
) -> BackendView:
    """Members that are left out stay as they are; one that is null goes back to its default."""
    admin.change(backend_id, members)
    return _one(plane, backend_id)


@router.post("/{backend_id}/drain", summary="Send nothing new there; what runs there ends", responses=CHANGE)
async def drain_backend(plane: Plane, admin: Admin, backend_id: str) -> BackendView:
    admin.drain(backend_id, True)
    return _one(plane, backend_id)


@router.post("/{backend_id}/undrain", summary="End a drain", responses=CHANGE)
async def undrain_backend(plane: Plane, admin: Admin, backend_id: str) -> BackendView:
    admin.drain(backend_id, False)
    return _one(plane, backend_id)


@router.delete(
    "/{backend_id}",
    summary="Remove a backend",
    status_code=202,
    responses={**CHANGE, 204: {"description": "it is gone"}},
)
async def remove_backend(
    plane: Plane, admin: Admin, backend_id: str, response: Response, now: bool = False
) -> BackendView | None:
    """It drains and goes when nothing is in flight there, or after `limits.drain`; with `now` it goes at once
    (streams that run through a gateway run on)."""
    admin.remove(backend_id, now)
    if backend_id not in plane.fleet.members:
        response.status_code = 204
        return None
    return _one(plane, backend_id)
