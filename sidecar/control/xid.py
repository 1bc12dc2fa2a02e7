"""What a GPU's XID errors ask for. They are a GPU's, not memory's.

Telemetry tells the errors as they come up (`Record.xids`); one that was there at the first look is history.
https://docs.nvidia.com/deploy/xid-errors/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from sidecar.telemetry.readings import XidEvent

NAMES: Final[Mapping[int, str]] = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "preemptive cleanup",
    48: "double bit ECC error",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GSP RPC timeout",
    120: "GSP error",
}
MENDED_BY_RESTART: Final = frozenset({13, 31, 43, 45, 94})
"""The engine's process is lost, the GPU is well."""
NEEDS_HANDS: Final = frozenset({48, 74, 79, 95, 119, 120})
"""No restart of the engine mends these: the GPU needs a reset, or the host a technician."""


class Remedy(StrEnum):
    """What to do about an XID."""

    NOTE = "note"
    RESTART = "restart"
    REMOVE = "remove"


def remedy(code: int) -> Remedy:
    """What an XID asks for; codes that are not known are only noted."""
    if code in NEEDS_HANDS:
        return Remedy.REMOVE
    return Remedy.RESTART if code in MENDED_BY_RESTART else Remedy.NOTE


def describe(event: XidEvent) -> str:
    """An error in words."""
    name = NAMES.get(event.code, "see NVIDIA's list")
    return f"XID {event.code} ({name}) on card {event.index or event.card}"


class XidWatch:
    """The errors of one backend's cards that were acted on already."""

    def __init__(self) -> None:
        self._seen = float("-inf")

    def new(self, events: Iterable[XidEvent]) -> list[XidEvent]:
        """Those that came up since the last call."""
        fresh = [event for event in events if event.at > self._seen]
        if fresh:
            self._seen = max(event.at for event in fresh)
        return fresh

    def pass_over(self, until: float) -> None:
        """Those until monotonic `until` are somebody else's: the sidecar that led then has acted on them."""
        self._seen = max(self._seen, until)
