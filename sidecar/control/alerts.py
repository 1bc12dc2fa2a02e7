"""What a person should know: alerts that stand until their cause is gone, with since when and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

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
    CHANGE_FAILED = "change_failed"
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

    def keep(self, backends: Collection[str], models: Collection[str]) -> None:
        """Forget those of backends and models that are gone: nothing would ever end them. That predictions
        deviate is ended by who measures it, whoever serves the model."""
        for kind, subject in list(self.standing):
            known = models if kind is Kind.FALLBACK else backends
            if kind is not Kind.PREDICTION_DEVIATION and subject not in known:
                del self.standing[kind, subject]

    def dump(self) -> list[dict[str, Any]]:
        """What another sidecar needs to go on."""
        return [
            {"kind": one.kind.value, "subject": one.subject, "text": one.text, "since_ms": one.since_ms}
            for one in self.standing.values()
        ]

    def restore(self, state: Iterable[Mapping[str, Any]]) -> None:
        """Let exactly those of a dump stand; kinds of another version are left out. Raises ValueError,
        KeyError, TypeError on a strange one."""
        told = [one for one in state if one["kind"] in set(Kind)]
        made = [
            Alert(Kind(one["kind"]), str(one["subject"]), str(one["text"]), int(one["since_ms"]))
            for one in told
        ]
        self.standing = {(one.kind, one.subject): one for one in made[:MOST]}
