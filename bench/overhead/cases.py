"""What is run: bodies, connections, and which systems take part."""

from __future__ import annotations

from dataclasses import dataclass

from bench.overhead.bodies import Text

KIB = 1024


@dataclass(frozen=True)
class RequestCase:
    """Fixed answers to bodies of one size."""

    size: int
    text: Text
    connections: int
    systems: tuple[str, ...] = ()
    """Which systems take part; none named: all."""

    @property
    def name(self) -> str:
        """Short name for tables."""
        return f"{self.size // KIB} KB {self.text}, {self.connections} conn."

    @property
    def facts(self) -> dict[str, str | int]:
        """The case as the result file tells it."""
        return {"body_kb": self.size // KIB, "text": self.text, "connections": self.connections}


@dataclass(frozen=True)
class StreamCase:
    """Streams of Server-Sent Events: many short rounds, so that a disturbance falls on all systems."""

    connections: int
    rounds: int
    seconds: float
    systems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """How much is run."""

    starts: int
    """How often all systems are started anew: gateways of the same code differ, by what LuaJIT happens to
    compile of it, and how."""
    requests: tuple[RequestCase, ...]
    rounds: int
    """Of each case, in each of the starts; those of the streams as well."""
    seconds: int
    streams: StreamCase


_MAIN = ("nginx-1", "tokenweir-1", "tokenweir-predictor-1", "vllm-router")
_BODIES: tuple[tuple[int, Text], ...] = (
    (2 * KIB, "prose"),
    (20 * KIB, "prose"),
    (220 * KIB, "prose"),
    (220 * KIB, "code"),
)

QUICK = Plan(
    starts=3,
    requests=(
        RequestCase(2 * KIB, "prose", 1, _MAIN),
        RequestCase(2 * KIB, "prose", 64),
        RequestCase(220 * KIB, "prose", 64, _MAIN),
        RequestCase(220 * KIB, "code", 64, _MAIN),
    ),
    rounds=1,
    seconds=1,
    streams=StreamCase(connections=16, rounds=3, seconds=0.7, systems=_MAIN),
)
FULL = Plan(
    starts=3,
    requests=tuple(RequestCase(size, text, connections) for size, text in _BODIES for connections in (1, 64)),
    rounds=2,
    seconds=3,
    streams=StreamCase(connections=32, rounds=7, seconds=1.5),
)
