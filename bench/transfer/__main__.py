"""`make bench-transfer [QUICK=1]`: what it takes to move a cache between two processes of this machine, and
the prefill that it saves."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench import report
from bench.report import Bar
from bench.transfer.cache import Cache
from bench.transfer.decision import Decision
from kv_agent.agent import Agent
from tokenweir import facts

MODEL: Final = "llama-3-8b"
SERVERS: Final = (("H100", "fp16"), ("A100-80G", "fp16"), ("L4", "fp16"), ("T4", "int4"))
TOKENS: Final = (512, 2048, 8192)
ROUNDS: Final = 7
LINKS: Final = {"10 Gbit/s": 1.25e9, "100 Gbit/s": 12.5e9, "400 Gbit/s": 50e9}
"""Bytes a second of what hosts are usually joined by."""
PATIENCE_MS: Final = 120_000


@contextmanager
def giver(block_bytes: int, blocks: int) -> Iterator[str]:
    """The other process; where its agent answers."""
    words = [sys.executable, "-m", "bench.transfer.giver", str(block_bytes), str(blocks)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def measure(block_bytes: int, rounds: int) -> dict[int, list[float]]:
    """Tokens -> ms of each round's transfer, after one that makes the link; the sizes take turns."""
    cache = Cache(block_bytes)
    agent = Agent(cache, "127.0.0.1")
    took: dict[int, list[float]] = {tokens: [] for tokens in TOKENS}
    with giver(block_bytes, max(TOKENS) // cache.block_tokens) as source:
        for number in range(rounds + 1):
            for tokens in TOKENS if number % 2 else TOKENS[::-1]:
                cache.forget()
                asked = {"blocks": tokens // cache.block_tokens}
                found = await agent.fetch(source, "bench", asked, PATIENCE_MS)
                if found.tokens != tokens or found.bytes != asked["blocks"] * block_bytes:
                    raise RuntimeError(f"{found} came of {tokens} tokens")
                if number:
                    took[tokens].append(found.ms)
    await agent.close()
    return took


def figures(took: Mapping[int, Sequence[float]], kv_bytes: int) -> list[dict[str, Any]]:
    """What each size took, and what it would take to compute it."""
    decision, cases = Decision(), []
    for tokens, times in took.items():
        ms = statistics.median(times)
        size = tokens * kv_bytes
        case: dict[str, Any] = {
            "case": {"tokens": tokens, "bytes": size, "model": MODEL},
            "transfer_ms": ms,
            "transfer_ms_least": min(times),
            "transfer_ms_most": max(times),
            "gb_per_s": size / ms / 1e6,
            "servers": [],
        }
        for gpu, precision in SERVERS:
            prefill = facts.coefficients(gpu, MODEL, precision, 1).prefill
            case["servers"].append(
                {
                    "gpu": gpu,
                    "precision": precision,
                    "prefill_ms": tokens * prefill,
                    "pays_here": decision.pays(tokens, kv_bytes, prefill, 1000 * size / ms, 0),
                    "pays_over": [
                        name
                        for name, speed in LINKS.items()
                        if decision.pays(tokens, kv_bytes, prefill, speed)
                    ],
                }
            )
        cases.append(case)
    return cases


def show(cases: Sequence[Mapping[str, Any]], to: Console) -> None:
    """Print the cases as tables."""
    table = Table(title=f"Moving a cache of {MODEL} between two processes of this machine (Gloo)")
    for column in ("tokens", "MB", "ms, median", "least", "most", "GB/s"):
        table.add_column(column, justify="right")
    for case in cases:
        table.add_row(
            f"{case['case']['tokens']:,}",
            f"{case['case']['bytes'] / 1e6:,.0f}",
            *(f"{case[name]:,.0f}" for name in ("transfer_ms", "transfer_ms_least", "transfer_ms_most")),
            f"{case['gb_per_s']:.2f}",
        )
    to.print(table)
    table = Table(title="Against computing it anew (by the table of facts)")
    for column in ("tokens", "GPU", "prefill, ms", "moved here", "moved over"):
        table.add_column(column, justify="left" if column in {"GPU", "moved over"} else "right")
    for case in cases:
        for server in case["servers"]:
            table.add_row(
                f"{case['case']['tokens']:,}",
                f"{server['gpu']} {server['precision']}",
                f"{server['prefill_ms']:,.0f}",
                "yes" if server["pays_here"] else "no",
                ", ".join(server["pays_over"]) or "none of these links",
            )
    to.print(table)


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(prog="python -m bench.transfer", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    options = parser.parse_args()
    console = report.console()
    kv_bytes = facts.model(MODEL).kv_bytes_per_token
    took = asyncio.run(measure(16 * kv_bytes, 3 if options.quick else ROUNDS))
    cases = figures(took, kv_bytes)
    show(cases, console)
    complete = sum(len(times) for times in took.values())
    wanted = len(TOKENS) * (3 if options.quick else ROUNDS)
    bars = [Bar("transfers that brought every block", complete, "==", wanted)]
    report.show_bars(bars, console)
    overall = {"kv_bytes_per_token": kv_bytes, "links_bytes_per_s": LINKS}
    path = report.write("transfer", quick=options.quick, seed=0, overall=overall, cases=cases, bars=bars)
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main()
