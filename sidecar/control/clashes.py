"""Gateways that share one `gateway_id` by mistake: each overwrites the other's lease, and one is not counted.

A gateway that was started anew changes its instance once; two of one id change it to and fro.
"""

from __future__ import annotations

from typing import Final

import structlog

log = structlog.get_logger(__name__)

REMEMBERED_MS: Final = 60_000
MOST_INSTANCES: Final = 16


class Clashes:
    """Watches which instance writes each lease. `ids` are those of the last minute."""

    def __init__(self) -> None:
        self._instances: dict[str, list[str]] = {}
        """Id -> the instances seen, the present one last."""
        self._seen_ms: dict[str, int] = {}

    def observe(self, gateway: str, instance: str, time_ms: int) -> None:
        """Take one look at a lease of wall time `time_ms`."""
        seen = self._instances.setdefault(gateway, [])
        if seen and seen[-1] == instance:
            return
        if instance in seen:
            if gateway not in self.ids(time_ms):
                log.error(
                    "gateway_id_shared",
                    gateway=gateway,
                    instances=sorted({seen[-1], instance}),
                    remedy="give each gateway a gateway_id of its own",
                )
            self._seen_ms[gateway] = time_ms
            seen.remove(instance)
        seen.append(instance)
        del seen[:-MOST_INSTANCES]

    def ids(self, now_ms: int) -> list[str]:
        """Ids that two gateways had within the last minute before wall time `now_ms`."""
        return sorted(name for name, at in self._seen_ms.items() if now_ms - at < REMEMBERED_MS)
