"""The interleaved rounds: every system once a round, each round in another order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from bench.overhead import bodies, streams, wrk
from bench.overhead.cases import RequestCase, StreamCase
from bench.overhead.streams import StreamSample
from bench.overhead.wrk import Sample

T = TypeVar("T")


class System(Protocol):
    """What is measured: a listening port and the process that all of the system descends from."""

    port: int

    @property
    def pid(self) -> int:
        """Root of the process tree whose CPU counts."""


def orders(names: Sequence[str], rounds: int, seed: int) -> Iterator[list[str]]:
    """Yield one order of the systems a round, so that none always runs in the wake of the same other."""
    source = random.Random(seed)
    for _ in range(rounds):
        order = list(names)
        source.shuffle(order)
        yield order


def _rounds(
    systems: Mapping[str, System], rounds: int, seed: int, run: Callable[[System, int], T]
) -> list[dict[str, T]]:
    return [
        {name: run(systems[name], number) for name in order}
        for number, order in enumerate(orders(list(systems), rounds, seed))
    ]


def taking_part(systems: Mapping[str, System], names: Sequence[str]) -> dict[str, System]:
    """Return the systems of these names that could be started; all when no name is given."""
    return {name: system for name, system in systems.items() if not names or name in names}


def requests(
    case: RequestCase, systems: Mapping[str, System], *, rounds: int, seconds: int, folder: Path, seed: int
) -> list[dict[str, Sample]]:
    """Run one case of fixed answers; every round has a body of its own text."""
    files = []
    for number in range(rounds):
        files.append(folder / f"body-{number}.json")
        files[-1].write_bytes(bodies.chat(case.size, case.text, seed + number))

    def run(system: System, number: int) -> Sample:
        return wrk.run(system.port, system.pid, files[number], case.connections, seconds)

    return _rounds(taking_part(systems, case.systems), rounds, seed, run)


def event_streams(
    case: StreamCase, systems: Mapping[str, System], seed: int
) -> list[dict[str, StreamSample]]:
    """Run the case of streams."""

    def run(system: System, number: int) -> StreamSample:
        return streams.run(system.port, system.pid, case.connections, case.seconds, seed + number)

    return _rounds(taking_part(systems, case.systems), case.rounds, seed, run)
