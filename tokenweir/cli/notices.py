"""What `status` tells beside the table: models out of their usual state, alerts, a stale snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ALERTS_SHOWN = 20
STALE = "stale"
"""The word by which a gateway's `/readyz` says that its snapshot is old."""


def gateway_state(ready: bool, text: str) -> str:
    """How a gateway stands, by the answer of its `/readyz`, as rich markup."""
    if not ready:
        return f"[red]not ready[/]: {text}"
    if STALE in text:
        return (
            "[yellow]ready, by a stale snapshot[/]: nothing new reaches it from the sidecar; it goes on by "
            "what it was told last, and by what it sees itself"
        )
    return "[green]ready[/]"


def model_lines(models: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each model that is not in its usual state: levels, burst mode, the fallback, who waits."""
    return [f"model {name}: {model['unusual']}" for name, model in models.items() if model["unusual"]]


def alert_lines(alerts: list[dict[str, Any]], now_ms: float) -> list[str]:
    """A line for each alert that stands at wall time `now_ms`, the oldest first; of many the first ones."""
    lines = [
        f"alert{', somebody is wanted' if alert['page'] else ''}: {alert['kind']} of {alert['subject']} "
        f"for {duration(now_ms - alert['since_ms'])}: {alert['text']}"
        for alert in alerts[:ALERTS_SHOWN]
    ]
    more = len(alerts) - len(lines)
    return [*lines, f"and {more} more alerts: GET /api/alerts"] if more > 0 else lines


def duration(ms: float) -> str:
    """`40 s`, `12 min`, `3.5 h`, `4.0 d`."""
    seconds = max(ms, 0.0) / 1000
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"
