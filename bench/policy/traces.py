"""The recorded traffic: arrivals and lengths as they are in the traces, nothing changed but the rate."""

from __future__ import annotations

import csv
import gzip
import json
import random
import tarfile
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from bench.report import data_folder

SOURCES: Final = {
    "azure_conv": "Azure/AzurePublicDataset (CC-BY 4.0), traces of 2023",
    "azure_code": "Azure/AzurePublicDataset (CC-BY 4.0), traces of 2023",
    "mooncake": "kvcache-ai/Mooncake (Apache-2.0), FAST25-release/traces",
    "m_small": "alibaba/ServeGen (Apache-2.0), data/language",
    "m_mid": "alibaba/ServeGen (Apache-2.0), data/language",
}
MOONCAKE_BLOCK: Final = 512
SERVEGEN_BEGIN_S: Final = 34 * 3600
"""ServeGen: an hour of the second day's morning; another seed takes another day."""
DISTRIBUTION_S: Final = 21_600
"""ServeGen tells lengths for every six hours."""
GOLDEN: Final = 0.381966


class MissingTraceError(FileNotFoundError):
    """A trace is not at hand. The message says where it can be had."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a trace."""

    at: float
    """Seconds from the trace's begin."""
    prompt: int
    output: int
    session: int | None = None
    key: str = ""
    hashes: tuple[int, ...] = ()
    """Content of the leading blocks of 512 tokens, where the trace tells it."""


def _path(name: str) -> Path:
    path = data_folder() / "traces" / name
    if not path.exists():
        raise MissingTraceError(
            f"no trace {path}: set TOKENWEIR_DATA to a folder that holds traces/{name}; sources: "
            + "; ".join(sorted(set(SOURCES.values())))
        )
    return path


def _azure(name: str) -> list[Asked]:
    with gzip.open(_path(f"azure2023_{name}.csv.gz"), "rt") as lines:
        rows = list(csv.DictReader(lines))
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows]
    return [
        Asked(at - times[0], max(1, int(row["ContextTokens"])), max(1, int(row["GeneratedTokens"])))
        for at, row in zip(times, rows, strict=True)
    ]


def _mooncake() -> list[Asked]:
    """A session is a chain that shares its first two blocks (the first is one system prompt of all)."""
    with gzip.open(_path("mooncake_conversation.jsonl.gz"), "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Asked(
            row["timestamp"] / 1000,
            row["input_length"],
            max(1, row["output_length"]),
            session=row["hash_ids"][min(1, len(row["hash_ids"]) - 1)],
            hashes=tuple(row["hash_ids"][: row["input_length"] // MOONCAKE_BLOCK]),
        )
        for row in rows
    ]


class _Lengths:
    """A distribution over whole numbers, as ServeGen prints it: `{13: 0.5, 14: 0.5}`."""

    def __init__(self, text: str) -> None:
        items = [item.split(":") for item in text.strip("{} ").split(",") if ":" in item]
        self.values = [int(value) for value, _ in items]
        self._sums = list(accumulate(float(weight) for _, weight in items))

    def draw(self, rng: random.Random) -> int:
        at = bisect_left(self._sums, rng.random() * self._sums[-1])
        return max(1, self.values[min(at, len(self.values) - 1)])


def _gaps(rng: random.Random, kind: str, first: float, second: float) -> Callable[[], float]:
    """Gaps in seconds: ServeGen gives shape and scale of a Gamma or Weibull distribution."""
    if kind == "Weibull":
        return lambda: rng.weibullvariate(second, first)
    return lambda: rng.gammavariate(first, second)


def _client(
    client: tuple[str, list[list[str]], dict[str, Any]], begin: int, seconds: float, seed: int
) -> Iterator[Asked]:
    """The requests of one client in the first `seconds` of a window."""
    name, windows, distributions = client
    window = next((row for row in windows if row[0] == str(begin)), None)
    if window is None or not window[3] or float(window[1]) <= 0:
        return
    told = distributions.get(str(begin // DISTRIBUTION_S * DISTRIBUTION_S)) or {}
    prompts, outputs = (_Lengths(told.get(part) or "") for part in ("input_tokens", "output_tokens"))
    if not prompts.values or not outputs.values:
        return
    rng = random.Random(f"{name}/{begin}/{seed}")
    gap = _gaps(rng, window[3], float(window[4]), float(window[5]))
    # From before the begin on, so that not all clients start at one moment.
    clock = -rng.random() * seconds
    while clock < seconds:
        if clock >= 0:
            yield Asked(clock, prompts.draw(rng), outputs.draw(rng), key=name)
        clock += gap()


@cache
def _servegen_files(name: str) -> list[tuple[str, list[list[str]], dict[str, Any]]]:
    clients = []
    with tarfile.open(_path(f"{name}_top10.tar.gz")) as archive:
        members = {Path(member.name).name: member for member in archive.getmembers() if member.isfile()}
        for file in sorted(member for member in members if member.endswith("-trace.csv")):
            client = file.removesuffix("-trace.csv")
            trace, dataset = (archive.extractfile(members[part]) for part in (file, f"{client}-dataset.json"))
            assert trace is not None and dataset is not None
            windows = list(csv.reader(trace.read().decode().splitlines()))
            clients.append((client, windows, json.loads(dataset.read())))
    return clients


def _servegen(name: str, count: int, seed: int) -> list[Asked]:
    """`count` requests of the ten largest clients, drawn from their published distributions."""
    begin = SERVEGEN_BEGIN_S + 86_400 * seed
    clients = _servegen_files(name)
    rate = sum(float(row[1]) for _, rows, _ in clients for row in rows if row[0] == str(begin) and row[3])
    if rate <= 0:
        raise ValueError(f"{name}: no client is active {begin} s after its begin")
    seconds = 1.5 * count / rate
    found: list[Asked] = []
    while len(found) < count:
        found = [request for client in clients for request in _client(client, begin, seconds, seed)]
        seconds *= 1.5
    return sorted(found, key=lambda request: request.at)[:count]


@cache
def _recorded(name: str) -> list[Asked]:
    return _mooncake() if name == "mooncake" else _azure(name.removeprefix("azure_"))


def stretch(name: str, count: int, seed: int) -> list[Asked]:
    """`count` consecutive requests of a trace; another seed gives another part of it."""
    if name in ("m_small", "m_mid"):
        return _servegen(name.replace("_", "-"), count, seed)
    asked = _recorded(name)
    skip = int((seed * GOLDEN) % 1 * max(0, len(asked) - count))
    found = asked[skip : skip + count]
    if len(found) < count:
        # A trace that is too short goes on from its begin.
        span = found[-1].at - found[0].at
        again = list(found)
        while len(found) < count:
            shift = (len(found) // len(again)) * (span + 1)
            found += [
                Asked(a.at + shift, a.prompt, a.output, a.session, a.key, a.hashes)
                for a in again[: count - len(found)]
            ]
    return found
