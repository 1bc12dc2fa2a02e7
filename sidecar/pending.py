"""Which changes of `tokenweir.yaml` a reload cannot put into effect."""

from __future__ import annotations

from typing import Any, Final

from tokenweir.config import Config

READ_AT_START: Final = (
    "listen",
    "admin",
    "redis",
    "telemetry",
    "log",
    "gateway_id",
    "state_dir",
    "limits.body_max",
    "limits.body_memory",
    "limits.connections",
    "limits.drain",
    "limits.tries",
)
"""Keys that nginx or the sidecar reads when it starts. (Fewer `limits.tries` hold at once.)"""


def keys(started_with: Config, now: Config) -> list[str]:
    """Keys that have another value now than when the parts were started."""
    before, after = started_with.model_dump(), now.model_dump()
    return [key for key in READ_AT_START if _value(before, key) != _value(after, key)]


def _value(document: dict[str, Any], key: str) -> Any:
    section, _, member = key.partition(".")
    return document[section][member] if member else document[section]
