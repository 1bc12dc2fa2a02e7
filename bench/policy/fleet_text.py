"""A fleet as one writes it on a command line: `2xA100-80G, H100, 4xT4:int4`."""

from __future__ import annotations

import re
from typing import Final

from bench.policy.server import ServerSpec

EXAMPLE: Final = "2xA100-80G,1xH100,4xT4:int4"
MOST: Final = 2000
"""Servers of a fleet."""
_PART: Final = re.compile(
    r"(?:(?P<count>[0-9]{1,6})\s*[x*]\s*)?(?P<gpu>[^:\s][^:]*?)\s*(?::\s*(?P<precision>\w+))?"
)


class FleetError(ValueError):
    """What was written is no fleet. The message names the part that is wrong, and an example."""


def read(text: str, each: ServerSpec) -> list[ServerSpec]:
    """The servers that `text` names, in its order: parts `COUNTxGPU:PRECISION` with commas between; count
    and precision may be left out. All else is as `each` has it. Raises FleetError."""
    servers: list[ServerSpec] = []
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if not found:
            raise FleetError(f"{part.strip()!r} names no servers; a fleet is written like {EXAMPLE}")
        count = int(found["count"] or 1)
        if not 1 <= count <= MOST - len(servers):
            raise FleetError(f"{part.strip()!r}: a fleet has 1 to {MOST:,} servers, like {EXAMPLE}")
        one = each.but(gpu=found["gpu"], precision=found["precision"] or each.precision)
        servers += [one] * count
    return servers


def describe(servers: list[ServerSpec]) -> str:
    """The fleet in words: `2 x A100-80G fp16 (474,272 KV tokens), ...`. Raises what `facts` raises."""
    parts: dict[ServerSpec, int] = {}
    for spec in servers:
        parts[spec] = parts.get(spec, 0) + 1
    return ", ".join(
        f"{count} x {spec.gpu} {spec.precision} ({spec.kv_tokens:,} KV tokens)"
        for spec, count in parts.items()
    )
