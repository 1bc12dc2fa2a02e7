"""`make bench-predictor [QUICK=1]`: how well output lengths are predicted, beside what other routers predict
by."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import report
from bench.predictor import (
    bars,
    figures,
    folds,
    held_out,
    history,
    prompt_tokens,
    small_model,
    timing,
)
from bench.predictor.folds import FULL, QUICK, Plan
from model import recorded
from model.core import Core
from model.recorded import MissingDataError, Recorded

Found = dict[str, dict[str, dict[str, float]]]
Result = tuple[dict[str, Any], list[Any], list[report.Bar]]
"""What holds overall, the cases, the bars."""
SHOWN = (
    ("mae", "error", 1),
    ("mae_vs_median", "against median", 3),
    ("kendall_tau", "tau", 3),
    ("coverage_q90", "coverage", 3),
    ("pinball_q90_vs_constant", "pinball", 3),
    ("class_precision", "precision", 3),
    ("class_recall", "recall", 3),
)


def _show(title: str, found: Found, console: Console) -> None:
    table = Table(title=title)
    table.add_column("method")
    table.add_column("source")
    for _, name, _ in SHOWN:
        table.add_column(name, justify="right")
    for method, by_source in found.items():
        for source, numbers in by_source.items():
            cells = [f"{numbers[key]:.{digits}f}" if key in numbers else "" for key, _, digits in SHOWN]
            table.add_row(method, source, *cells)
        table.add_section()
    console.print(table)


def _average(runs: list[Found]) -> Found:
    return {method: figures.average([run[method] for run in runs]) for method in runs[0]}


def _mean(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}


def seed(core: Core, data: Recorded, plan: Plan, number: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """All that is measured with one seed."""
    fitted = folds.fit(core, data, plan, number, tell)
    found, asked = held_out.prompts(core, data, fitted, plan, number)
    played = history.play(core, data, fitted, plan, number)
    part = {
        "splits": {
            "prompts held out": found,
            "source held out": held_out.sources(core, data, plan, number, tell),
            "with history": history.by_source(core, played),
        },
        "deviation": {
            "trained": history.deviation(played.stream, played.trained.mean),
            "running": history.deviation(played.stream, played.running.mean),
        },
        "drift": history.drift(core, data, fitted, plan, number),
        "small_model": small_model.measure(data, asked, fitted.of_prompt, plan, tell),
    }
    if number == plan.seeds[0]:
        assert fitted.payload is not None
        part["timing"] = timing.measure(fitted.payload, data, plan)
        part["prompt_tokens"] = prompt_tokens.measure(core, data, number)
    return part


def together(data: Recorded, plan: Plan, parts: list[dict[str, Any]], console: Console) -> Result:
    """The result of all seeds; the parts are those of `plan.seeds`, in order."""
    splits = {name: _average([part["splits"][name] for part in parts]) for name in parts[0]["splits"]}
    deviation = {name: _mean([part["deviation"][name] for part in parts]) for name in parts[0]["deviation"]}
    drift = _mean([part["drift"] for part in parts])
    times, tokens = parts[0]["timing"], parts[0]["prompt_tokens"]
    ceilings = figures.ceilings(data)
    cases: list[Any] = []
    for split, found in splits.items():
        _show(f"{split}, {len(plan.seeds)} seeds", found, console)
        for method, by_source in found.items():
            cases += bars.rows(method, split, by_source)
    for case in cases:
        ceiling = ceilings.get(case["case"]["source"])
        if ceiling is not None:
            case["tau_ceiling"] = ceiling
    checked = bars.bars(
        prompts=splits["prompts held out"],
        history=splits["with history"],
        deviation=deviation["trained"],
        drift=drift,
        timing=times,
        tokens=tokens,
    )
    overall = {
        **splits["with history"][bars.OURS][figures.OVERALL],
        **{name: times["2 KB"][name] for name in ("eval_us_p50", "eval_us_p99")},
        "tau_ceiling": ceilings,
        "seeds": list(plan.seeds),
        "deviation": deviation,
        "drift": drift,
        "timing": times,
        "prompt_tokens": tokens,
        "small_model": _mean([part["small_model"] for part in parts]),
        "sources": recorded.SOURCES,
    }
    return overall, cases, checked


def main() -> int:
    """Run the bench; missed bars are said, not an exit status. 2 where the recorded lengths are not at
    hand."""
    parser = argparse.ArgumentParser(prog="python -m bench.predictor", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, fewer outputs of a prompt")
    parser.add_argument(
        "--seeds", type=int, choices=(1, 2, 3), default=3, help="only the first so many seeds"
    )
    given = parser.parse_args()
    quick = given.quick
    console = report.console()
    try:
        data = recorded.load(report.data_folder())
    except MissingDataError as error:
        print(error, file=sys.stderr)
        return 2
    plan = QUICK if quick else replace(FULL, seeds=FULL.seeds[: given.seeds])
    core = Core()
    parts = [seed(core, data, plan, number, console.print) for number in plan.seeds]
    overall, cases, checked = together(data, plan, parts, console)
    report.show_bars(checked, console)
    path = report.write(
        "predictor", quick=quick, seed=plan.seeds[0], overall=overall, cases=cases, bars=checked
    )
    console.print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
