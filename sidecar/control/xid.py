"""What a GPU's XID error asks for.

XID errors are a GPU's, not memory's. The exporter's gauge keeps the last value for ever, so only its change counts:
what stands there at first sight, or goes on standing there, is history.
https://docs.nvidia.com/deploy/xid-errors/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

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


@dataclass(frozen=True, slots=True)
class XidEvent:
    """An XID that has newly appeared on a card."""

    card: str
    code: int
    remedy: Remedy

    @property
    def text(self) -> str:
        """The event in words."""
        return f"XID {self.code} ({NAMES.get(self.code, 'see NVIDIA XID errors')}) on card {self.card}"


def remedy(code: int) -> Remedy:
    """What an XID asks for; codes that are not known are only noted."""
    if code in NEEDS_HANDS:
        return Remedy.REMOVE
    return Remedy.RESTART if code in MENDED_BY_RESTART else Remedy.NOTE


class XidWatch:
    """The cards of one backend."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def observe(self, xids: Mapping[str, int]) -> list[XidEvent]:
        """Take the last XID of each card (0: none); returns those that are new."""
        events = [
            XidEvent(card, code, remedy(code))
            for card, code in xids.items()
            if code and card in self._last and self._last[card] != code
        ]
        self._last.update(xids)
        return events
