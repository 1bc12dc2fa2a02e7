"""`make bench-engine`: a recorded vLLM run, replayed on the emulated engine."""

from __future__ import annotations

import argparse
import sys
import time

from rich.table import Table

from bench import report
from bench.engine import figures
from bench.engine.plot import plot
from bench.engine.recording import SOURCE, MissingDataError, load
from bench.engine.replay import GPU, MODEL, replay


def main() -> int:
    """Run the bench; missed bars are said, not an exit status. 2 when the recorded run is not at hand."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="no difference: the replay takes a fraction of a second"
    )
    quick = parser.parse_args().quick
    console = report.console()
    try:
        recording = load()
    except MissingDataError as error:
        print(error, file=sys.stderr)
        return 2
    clock = time.perf_counter()
    replayed = replay(recording)
    wall = time.perf_counter() - clock
    cases = figures.latencies(recording, replayed) + figures.curves(recording, replayed)
    table = Table(title=f"{len(recording.requests)} requests, {MODEL} on {GPU}: recorded and emulated")
    for column in ("figure", "recorded", "emulated", "off by"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for case in cases:
        name = " ".join(str(value) for key, value in case["case"].items() if key != "seconds")
        table.add_row(name, f"{case['real']:.3f}", f"{case['emulated']:.3f}", f"{100 * case['error']:+.1f} %")
    console.print(table)
    bars = figures.bars(cases)
    report.show_bars(bars, console)
    overall = {
        "source": SOURCE,
        "requests": len(recording.requests),
        "kv_tokens": recording.capacity,
        "makespan_s": {
            "real": round(max(served.last_token for served in recording.requests), 2),
            "emulated": round(max(served.last_token for served in replayed.requests), 2),
        },
        "steps": replayed.counters.steps,
        "preemptions": replayed.counters.preemptions,
        "wall_s": round(wall, 3),
    }
    # The replay draws nothing at random: one run is all there is.
    path = report.write("engine", quick=quick, seed=0, overall=overall, cases=cases, bars=bars)
    plot(recording, replayed, path.with_suffix(".png"))
    console.print(
        f"{path.relative_to(report.ROOT)}, {path.with_suffix('.png').name}; replayed in {wall:.2f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
