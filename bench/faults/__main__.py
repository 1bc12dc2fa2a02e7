"""`make bench-faults [QUICK=1]`: parts are killed, frozen and restarted while clients come and leave."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import redis.asyncio as redis
from rich.console import Console

from bench import report
from bench.faults import client, picture, schedule, traffic, watch
from bench.faults.client import Record
from bench.faults.figures import bars, figures
from bench.faults.fleet import executions, start
from bench.faults.stage import GATEWAY, Stage
from bench.faults.witness import Witness
from bench.servers.folder import open_folder

SEED = 1
ROUNDS = 3
PER_SECOND = 50
IDLE_S = 30
"""How long after the last answer the counts may take to come back to zero."""


async def _traffic(port: int, seconds: float, seed: int, records: list[Record]) -> None:
    """Send one round's requests when they are due, and wait for all of them to end."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:

        async def one(request: traffic.Request) -> None:
            records.append(await client.send(request, port))

        for request in traffic.requests(seconds, PER_SECOND, seed):
            await asyncio.sleep(max(0, began + request.at - loop.time()))
            group.create_task(one(request))


async def run(plan: schedule.Round, rounds: int, folder: Path, console: Console) -> dict[str, Any]:
    """Run all rounds on one fleet; return overall figures, cases and the records."""
    witness = Witness()
    with contextlib.ExitStack() as stack:
        parts = await start(folder, stack, witness, console.print)
        connection = redis.Redis(port=parts.redis.port, socket_timeout=0.5, socket_connect_timeout=0.5)
        stage = Stage(
            redis=parts.redis,
            sidecar=parts.sidecar,
            gateway=parts.gateway,
            engines=parts.engines,
            client=connection,
            source=random.Random(SEED),
        )
        everything: list[Record] = []
        windows = []
        for number in range(rounds):
            console.print(f"round {number + 1} of {rounds}: {plan.seconds:.0f} s of faults")
            records: list[Record] = []
            first = len(stage.faults)
            async with asyncio.TaskGroup() as group:
                group.create_task(schedule.strike(plan, stage))
                group.create_task(_traffic(parts.gateway.port, plan.seconds, SEED + number, records))
            everything += records
            windows.append((records, stage.faults[first:]))
        left = await watch.until_idle(connection, GATEWAY, IDLE_S)
        executed = executions(parts, witness)
        cases = []
        for number, (records, faults) in enumerate(windows):
            numbers, _ = figures(records, stage, faults, executed, witness.requests)
            cases.append({"case": {"seed": SEED + number, "seconds": plan.seconds}, **numbers})
        overall, summed = figures(everything, stage, stage.faults, executed, witness.requests)
        overall["inflight_left"] = sum(left.values()) if left else None
        overall["inflight"] = left
        overall["faults"] = stage.done
        overall["alerts"] = [line for line in parts.gateway.error_log().splitlines() if "[alert]" in line][
            :20
        ]
        overall["lost_examples"] = [
            {
                "id": record.id,
                "second": round(record.started - stage.began, 2),
                "took_s": round(record.ended - record.started, 2),
                "outcome": record.outcome,
                "status": record.status,
                "backend": record.backend,
                "detail": record.detail,
            }
            for record in summed.lost[:20]
        ]
        await connection.aclose()
    return {"overall": overall, "cases": cases, "records": everything, "stage": stage}


def main() -> None:
    """Run the bench; missed bars are said, not an exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round")
    quick = parser.parse_args().quick
    console = report.console()
    plan, rounds = (schedule.QUICK, 1) if quick else (schedule.FULL, ROUNDS)
    with open_folder() as folder:
        result = asyncio.run(run(plan, rounds, folder, console))
    overall = result["overall"]
    picture.show(overall, result["cases"], console)
    found = bars(overall, quick)
    report.show_bars(found, console)
    path = report.write("faults", quick=quick, seed=SEED, overall=overall, cases=result["cases"], bars=found)
    drawn = picture.plot(result["records"], result["stage"], path.with_suffix(".png"))
    console.print(f"wrote {path} and {drawn}")


if __name__ == "__main__":
    main()
