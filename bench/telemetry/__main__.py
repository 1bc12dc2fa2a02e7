"""`make bench-telemetry [QUICK=1]`: what watching a fleet costs the sidecar."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from bench import report
from bench.report import Bar
from bench.telemetry.engines import address
from bench.telemetry.pages import CARDS_OF_A_HOST, exporter_pages, vllm_pages
from sidecar.clock import monotonic_ms
from sidecar.control.fleet import Fleet
from sidecar.control.gateways import Gateways
from sidecar.telemetry import dcgm, vllm
from sidecar.telemetry.collector import Collector
from sidecar.telemetry.exposition import Page
from sidecar.telemetry.health import Look
from sidecar.telemetry.http import Origin
from sidecar.telemetry.watch import Watch, Where
from tokenweir.config.models import BackendConfig, TelemetryConfig

SEEDS = (1, 2, 3)
MOST = 256
SHARE_LIMIT = 0.25
SETTLE_S = 3.0


@dataclass(frozen=True)
class Case:
    """How many engines are watched, and whether their hosts' exporters are."""

    engines: int
    exporters: bool

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.engines} engines" + (", 8 to a host with an exporter" if self.exporters else "")


CASES = (Case(64, False), Case(MOST, False), Case(MOST, True))


@contextmanager
def served(count: int, port: int) -> Iterator[dict[str, int]]:
    """The engines, in a process of their own; the sizes of their pages."""
    words = [sys.executable, "-m", "bench.telemetry.engines", "--count", str(count), "--port", str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


def _backends(case: Case, port: int) -> dict[str, BackendConfig]:
    found = {}
    for number in range(case.engines):
        members: dict[str, Any] = {"id": f"e{number}", "url": f"http://{address(number)}:{port}"}
        if case.exporters:
            host = address(number - number % CARDS_OF_A_HOST)
            members |= {"dcgm_url": f"http://{host}:{port}/dcgm", "cards": [number % CARDS_OF_A_HOST]}
        found[members["id"]] = BackendConfig(**members)
    return found


async def watch(case: Case, port: int, seconds: float) -> dict[str, Any]:
    """Watch as the sidecar does, for so long; what it took."""
    config = TelemetryConfig()
    backends = _backends(case, port)
    fleet = Fleet(Gateways())
    fleet.set_members(backends.values(), set())
    looks, bad = 0, 0

    def seen(one: Watch, look: Look, text: str) -> None:
        nonlocal looks, bad
        looks, bad = looks + 1, bad + (look is not Look.OK)
        fleet.observe(one.config.id, look, text, monotonic_ms())

    def where(backend: BackendConfig) -> Where:
        origin = Origin(backend.url, f"{backend.host}:{backend.port}")
        return lambda: origin

    collector = Collector(config, seen)
    await collector.open()
    collector.set_backends({name: (backend, where(backend)) for name, backend in backends.items()})
    for name, one in collector.watches.items():
        fleet.members[name].record = one.record
    await asyncio.sleep(SETTLE_S)
    looks = bad = 0
    traffic = collector.fetcher.traffic
    requests, size = traffic.requests, traffic.bytes
    began, cpu = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    passed, cpu = time.monotonic() - began, time.process_time() - cpu
    requests, size = traffic.requests - requests, traffic.bytes - size
    ages = [monotonic_ms() - one.record.engine.at for one in collector.watches.values() if one.record.engine]
    cards = [one.record.card for one in collector.watches.values()]
    await collector.close()
    ticks = passed / (config.interval / 1000)
    return {
        "cpu_share": cpu / passed,
        "cpu_us_per_look": 1e6 * cpu / max(looks, 1),
        "looks_of_due": looks / (ticks * case.engines),
        "requests_per_s": requests / passed,
        "kib_per_tick": size / ticks / 1024,
        "failed_looks": bad,
        "oldest_reading_ms": max(ages, default=None),
        "cards_read": sum(reading is not None for reading in cards),
    }


def reading(seed: int, rounds: int) -> dict[str, float]:
    """Microseconds to read one page, least of the rounds: ours, and a general parser's."""
    pages, exporter = vllm_pages(seed), exporter_pages(seed)
    places: dict[str, int] = {}
    reader = dcgm.Reader()

    def ours() -> None:
        for page in pages:
            vllm.read(Page(page, places), 0)

    def cards() -> None:
        for page in exporter:
            reader.read(page)

    def general() -> None:
        for family in text_string_to_metric_families(pages[0].decode()):
            _ = family.samples

    least = {"engine_us": float("inf"), "exporter_us": float("inf"), "general_us": float("inf")}
    for _ in range(rounds):
        for name, call, count in (
            ("engine_us", ours, len(pages)),
            ("exporter_us", cards, len(exporter)),
            ("general_us", general, 1),
        ):
            start = time.perf_counter()
            call()
            least[name] = min(least[name], 1e6 * (time.perf_counter() - start) / count)
    return least


def run(quick: bool, port: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All cases, interleaved, once for each seed."""
    seconds, seeds = (5.0, SEEDS[:1]) if quick else (15.0, SEEDS)
    measured: dict[Case, list[dict[str, Any]]] = {case: [] for case in CASES}
    with served(MOST, port) as sizes:
        for seed in seeds:
            for case in CASES if seed % 2 else CASES[::-1]:
                measured[case].append(asyncio.run(watch(case, port, seconds)))
    cases = []
    for case, runs in measured.items():
        figures = {
            name: statistics.median(run[name] for run in runs)
            for name in runs[0]
            if all(run[name] is not None for run in runs)
        }
        shares = [run["cpu_share"] for run in runs]
        figures |= {"cpu_share_least": min(shares), "cpu_share_most": max(shares)}
        cases.append({"case": {"name": case.name, "engines": case.engines}, **figures})
    reads = [reading(seed, 20 if quick else 100) for seed in seeds]
    overall = {**sizes, **{name: statistics.median(one[name] for one in reads) for name in reads[0]}}
    return cases, overall


def bars(cases: list[dict[str, Any]]) -> list[Bar]:
    """What must hold."""
    found = [
        Bar(f"{case['case']['name']}: share of a core", case["cpu_share"], "<=", SHARE_LIMIT)
        for case in cases
        if case["case"]["engines"] == MOST
    ]
    took_place = min(case["looks_of_due"] for case in cases if case["case"]["engines"] == MOST)
    return [*found, Bar("looks that were due and took place, share, least", took_place, ">=", 0.95)]


def show(cases: list[dict[str, Any]], overall: dict[str, Any], to: Console) -> None:
    """Print the cases as a table."""
    table = Table(title="One sidecar's telemetry, every 500 ms, median of the seeds")
    for column in ("case", "CPU, share of a core", "least", "most", "us a look", "requests/s", "KiB a tick"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for case in cases:
        table.add_row(
            case["case"]["name"],
            f"{case['cpu_share']:.3f}",
            f"{case['cpu_share_least']:.3f}",
            f"{case['cpu_share_most']:.3f}",
            f"{case['cpu_us_per_look']:.0f}",
            f"{case['requests_per_s']:.0f}",
            f"{case['kib_per_tick']:,.0f}",
        )
    to.print(table)
    to.print(
        f"reading a page: engine's {overall['engine_us']:.0f} us ({overall['page_bytes']:,} bytes), "
        f"exporter's {overall['exporter_us']:.0f} us, by a general parser {overall['general_us']:,.0f} us"
    )


def main() -> None:
    """Run the bench; missed bars are said, not an exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.telemetry", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, shorter")
    parser.add_argument("--port", type=int, default=18_600, help="of the engines, on the loopback network")
    options = parser.parse_args()
    console = report.console()
    cases, overall = run(options.quick, options.port)
    show(cases, overall, console)
    found = bars(cases)
    report.show_bars(found, console)
    path = report.write(
        "telemetry", quick=options.quick, seed=SEEDS[0], overall=overall, cases=cases, bars=found
    )
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main()
