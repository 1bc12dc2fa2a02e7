"""What the answer of an engine's `/health` means."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

PATH: Final = "/health"


class Look(StrEnum):
    """How a look at an engine went."""

    OK = "ok"
    LOADING = "loading"
    """It answers, and says that it cannot serve yet: normal while a model loads."""
    LATE = "late"
    """No answer in time."""
    REFUSED = "refused"
    """No connection."""
    ERROR = "error"
    """An answer that a healthy engine does not give."""
    BLIND = "blind"
    """The sidecar itself could not look: nothing is known of the engine."""


def read(status: int) -> Look:
    """The status of `/health` as a look. An engine without that page (404, 405, 501) is alive: whether it
    serves is then told by its list of models."""
    if status == 503:
        return Look.LOADING
    if 200 <= status < 400 or status in {404, 405, 501}:
        return Look.OK
    return Look.ERROR
