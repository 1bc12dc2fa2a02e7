"""Alerts for indicators that stay beyond their limits: fragmentation, context switch, prediction deviation.

What is not measured raises none, and ends one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from sidecar.control.alerts import Alerts, Kind
from sidecar.control.fleet import Fleet
from sidecar.control.latch import Latch
from sidecar.telemetry.indicators import Indicator

EVERY_MS: Final = 5000
HOLD_MS: Final = 10_000
LEAVE_MS: Final = 30_000
"""How long one must be beyond its limit, and then within it again."""
KINDS: Final = {"fragmentation": Kind.FRAGMENTATION, "context_switch": Kind.CONTEXT_SWITCH}
NAMES: Final = {
    Kind.FRAGMENTATION: "share of the KV memory handed out that holds no token",
    Kind.CONTEXT_SWITCH: "time from preemption to resumption",
    Kind.PREDICTION_DEVIATION: "predicted outputs against measured ones",
}

Deviations = Callable[[], Mapping[str, Indicator]]
"""The prediction deviation of each model."""


class IndicatorAlerts:
    """The alerts of the whole fleet."""

    def __init__(self, fleet: Fleet, alerts: Alerts, deviations: Deviations) -> None:
        self._fleet = fleet
        self._alerts = alerts
        self._deviations = deviations
        self._latches: dict[tuple[Kind, str], Latch] = {}
        self._looked_at = float("-inf")

    def step(self, now: float) -> None:
        """Look, if it is time to, at monotonic `now`."""
        if now - self._looked_at < EVERY_MS:
            return
        self._looked_at = now
        found = {(kind, subject): one for kind, subject, one in self._measured()}
        for key in {*self._latches, *self._alerts.standing} - set(found):
            if key[0] in NAMES:
                self._latches.pop(key, None)
                self._alerts.clear(*key)
        for (kind, subject), one in found.items():
            latch = self._latches.get((kind, subject))
            if latch is None:
                latch = self._latches[kind, subject] = Latch()
                # The leader before may have told it.
                latch.restore((kind, subject) in self._alerts.standing, now)
            latch.update(one.alert, not one.alert, now, hold=HOLD_MS, leave_hold=LEAVE_MS)
            if latch.on and one.alert:
                self._alerts.tell(kind, subject, _text(kind, one))
            elif not latch.on:
                self._alerts.clear(kind, subject)

    def _measured(self) -> Iterator[tuple[Kind, str, Indicator]]:
        for name, member in self._fleet.members.items():
            for indicator, one in member.record.indicators.now().items():
                yield KINDS[indicator], name, one
        for model, one in self._deviations().items():
            yield Kind.PREDICTION_DEVIATION, model, one


def _text(kind: Kind, one: Indicator) -> str:
    value = one.value or 0.0
    if one.unit == "ms":
        figures = f"{value:.0f} ms, over {one.limit:.0f} ms"
    else:
        figures = f"{value:.0%}, over {one.limit:.0%}"
    return f"{NAMES[kind]}: {figures} ({one.text})"
