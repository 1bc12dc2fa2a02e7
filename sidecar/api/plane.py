"""How a route reaches the control plane."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from sidecar.administration import Administration
from sidecar.control_plane import ControlPlane


def _plane(request: Request) -> ControlPlane:
    return cast("ControlPlane", request.app.state.plane)


def _administration(request: Request) -> Administration:
    return Administration(_plane(request), request.client.host if request.client else "")


Plane = Annotated[ControlPlane, Depends(_plane)]
Admin = Annotated[Administration, Depends(_administration)]
