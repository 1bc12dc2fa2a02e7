"""Routes: the configuration as it holds, without secrets, and reading the file again."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from sidecar.api.plane import Admin, Plane
from sidecar.api.problems import ProblemAnswer
from sidecar.control_plane import ControlPlane

router = APIRouter(prefix="/api/settings", tags=["settings"])

HIDDEN = "(hidden)"


class SettingsView(BaseModel):
    """Where the configuration comes from and what it is."""

    file: str
    changes_file: str = Field(description="what the admin API changed")
    version: int = Field(description="version of the published settings")
    pending: list[str] = Field(
        description="keys that the file has changed and that take effect with `make up`: nginx or the "
        "sidecar reads them at a start"
    )
    configuration: dict[str, Any]


def _view(plane: ControlPlane) -> SettingsView:
    configuration = plane.config.model_dump(mode="json")
    if configuration["admin"]["token"] is not None:
        configuration["admin"]["token"] = HIDDEN
    for key in configuration["keys"]:
        if key["sha256"] is not None:
            key["sha256"] = HIDDEN
    return SettingsView(
        file=str(plane.path),
        changes_file=str(plane.store.path),
        version=plane.publisher.settings_version,
        pending=plane.pending(),
        configuration=configuration,
    )


@router.get("", summary="The configuration as it holds")
async def get_settings(plane: Plane) -> SettingsView:
    """Times are in ms, sizes in bytes; keys and tokens are hidden."""
    return _view(plane)


@router.post("/reload", summary="Read tokenweir.yaml again", responses={422: {"model": ProblemAnswer}})
async def reload_settings(plane: Plane, admin: Admin) -> SettingsView:
    """Takes effect at once, but for what `pending` names in the answer. A file with an error changes
    nothing."""
    plane.reload()
    admin.tell("reload")
    return _view(plane)
