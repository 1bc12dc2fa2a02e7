"""Backends that a request to the admin API names: one that is not known is an error, not an empty answer."""

from __future__ import annotations

from typing import Any, Final

from sidecar.administration import UnknownBackendError
from sidecar.api.problems import ProblemAnswer
from sidecar.control_plane import ControlPlane

UNKNOWN: Final[dict[int | str, dict[str, Any]]] = {404: {"model": ProblemAnswer}}


def check_known(plane: ControlPlane, backend_id: str | None, remembered: bool = False) -> None:
    """Raises UnknownBackendError for a name that no backend has, and none had of which something is
    remembered."""
    if backend_id is not None and backend_id not in plane.fleet.members and not remembered:
        raise UnknownBackendError(backend_id, plane.fleet.members)
