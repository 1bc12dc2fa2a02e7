"""What a person should know: alerts that stand until their cause is gone, with since when and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import structlog

from sidecar.clock import wall_ms

log = structlog.get_logger(__name__)

MOST: Final = 4096


class Kind(StrEnum):
    """Kinds of alerts; each is a label of a metric."""

    XID = "xid"
    RESTARTS_SPENT = "restarts_spent"
    RESTART_FAILED = "restart_failed"
    RESTART_LONG = "restart_long"
    START_FAILED = "start_failed"
    CHANGE_CUT_OFF = "change_cut_off"
    NO_ACTUATOR = "no_actuator"
    OUT_OF_MEMORY = "out_of_memory"
    FALLBACK = "fallback"
    FRAGMENTATION = "fragmentation"
    CONTEXT_SWITCH = "context_switch"
    PREDICTION_DEVIATION = "prediction_deviation"


PAGES: Final = frozenset({Kind.XID, Kind.RESTARTS_SPENT, Kind.RESTART_FAILED, Kind.START_FAILED})
"""Kinds that no decision of ours will mend."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. `since_ms` is wall time."""

    kind: Kind
    subject: str
    text: str
    since_ms: int

    @property
    def page(self) -> bool:
        """Whether somebody has to come."""
        return self.kind in PAGES


class Alerts:
    """The alerts that stand, by kind and subject (a backend or a model)."""

    def __init__(self) -> None:
        self.standing: dict[tuple[Kind, str], Alert] = {}
        self.raised: dict[Kind, int] = dict.fromkeys(Kind, 0)
        """How many were raised since the start."""

    def put(self, kind: Kind, subject: str, text: str, at_ms: int) -> bool:
        """Let an alert stand since wall time `at_ms`; returns whether it is new."""
        known = self.standing.get((kind, subject))
        if known is None and len(self.standing) >= MOST:
            return False
        since = at_ms if known is None else known.since_ms
        self.standing[kind, subject] = Alert(kind, subject, text, since)
        if known is None:
            self.raised[kind] += 1
        return known is None

    def tell(self, kind: Kind, subject: str, text: str) -> None:
        """Let an alert stand from now on, and log it where it is new."""
        if self.put(kind, subject, text, wall_ms()):
            log.error("alert", kind=kind.value, subject=subject, text=text)

    def clear(self, kind: Kind, subject: str) -> bool:
        """Its cause is gone; returns whether it stood."""
        return self.standing.pop((kind, subject), None) is not None

    def clear_subject(self, subject: str) -> None:
        """Forget everything about a backend or model."""
        for key in [key for key in self.standing if key[1] == subject]:
            del self.standing[key]
