"""`replay`: a log of requests through the simulator, policy by policy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from tokenweir import facts

MISSING = "the simulator needs {}, which is not installed here: run `make up` and use .venv/bin/python"
CHECKOUT = "the simulator is in the folder bench/ of Tokenweir's repository: run this there"


def _fail(text: object) -> typer.Exit:
    sys.stderr.write(f"error: {text}\n")
    return typer.Exit(1)


def replay(  # noqa: PLR0917  (each is an option)
    trace: Annotated[
        Path,
        typer.Argument(
            help="CSV or JSON lines (.gz too): a time, prompt and output tokens a row; or the access log."
        ),
    ],
    fleet: Annotated[
        str, typer.Option(help="Servers of several kinds, like 2xA100-80G,1xH100,4xT4:int4.")
    ] = "",
    servers: Annotated[
        int | None, typer.Option(min=1, max=2000, help="Number of equal servers; default: 8.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="Their kind of GPU; default: A100-80G.")] = None,
    model: Annotated[str, typer.Option(help="Model that they serve.")] = "llama-3-8b",
    precision: Annotated[str, typer.Option(help="fp16, fp8 or int4.")] = "fp16",
    capacity: Annotated[
        int | None, typer.Option(min=16, help="KV tokens of a server; default: as GPU and model say.")
    ] = None,
    kind: Annotated[
        str, typer.Option(help="What a full engine does: preempt (vLLM, SGLang), abort (llama.cpp), crash.")
    ] = "preempt",
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Requests a second; default: as logged.")
    ] = None,
    policies: Annotated[
        str, typer.Option(help="Policies, comma-separated; `all` for every one; default: a choice.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Of what is drawn at random.")] = 1,
) -> None:
    """What would each policy have given? Replays a log of requests on simulated servers."""
    try:
        from bench.policy import fleet_text, table, user_log  # noqa: PLC0415
        from bench.policy import replay as simulator  # noqa: PLC0415  (only this command needs it)
        from bench.policy.figures import Objectives  # noqa: PLC0415
        from bench.policy.policies import ALL  # noqa: PLC0415
        from bench.policy.server import ServerSpec  # noqa: PLC0415
        from emulator.engine import Exhaustion  # noqa: PLC0415
        from tokenweir.luavm import new_runtime  # noqa: PLC0415

        new_runtime()
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        raise _fail(CHECKOUT if package in {"bench", "emulator"} else MISSING.format(package)) from None
    chosen = list(ALL) if policies == "all" else _names(policies) or list(simulator.SHOWN)
    unknown = [name for name in chosen if name not in ALL]
    if unknown:
        raise _fail(f"no policy is named {unknown[0]!r}; known: {'; '.join(ALL)}")
    if kind not in list(Exhaustion):
        raise _fail(f"--kind: one of {', '.join(Exhaustion)} is wanted, got {kind!r}")
    if fleet and (servers or gpu):
        raise _fail("give either --fleet, or --servers and --gpu")
    written = fleet or f"{servers or 8}x{gpu or 'A100-80G'}"
    each = ServerSpec(model=model, precision=precision, capacity=capacity, kind=Exhaustion(kind))
    try:
        specs = fleet_text.read(written, each)
        log = user_log.read(trace)
        asked = log.asked
        run = simulator.Replay(asked, specs, rate, seed, Objectives())
        described, left_out = fleet_text.describe(specs), run.left_out
    except fleet_text.FleetError as error:
        raise _fail(f"{'--fleet' if fleet else '--gpu'}: {error}") from None
    except facts.DoesNotFitError as error:
        raise _fail(f"{error} ({'--fleet' if fleet else '--precision, --gpu'})") from None
    except (user_log.LogError, facts.UnknownFactError) as error:
        raise _fail(error) from None
    except OSError as error:
        raise _fail(
            f"{trace}: {error.strerror}; a CSV or JSON lines file is wanted, see docs/simulator.md"
        ) from None
    if left_out == len(asked):
        raise _fail(f"no request of {trace} fits the smallest of {described}")
    console = Console() if sys.stdout.isatty() else Console(width=150)
    rows = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        for name in chosen:
            task = progress.add_task(name, total=len(asked) - left_out)
            rows[name] = run.run(name, _completed(progress, task))
    title = f"{len(asked):,} requests at {rate or run.as_logged:.2f}/s on {described}, {model}"
    table.show(title, rows, console, own="predictive")
    if log.without_lengths:
        console.print(
            f"{log.without_lengths:,} lines tell no lengths (refused, failed, no text) and were left out"
        )
    if left_out:
        console.print(f"{left_out:,} requests are longer than the smallest server's memory and were left out")
    console.print("good: first token within 1 s + prompt / 4,000 tokens a second, then 80 ms a token at most")


def _completed(progress: Progress, task: TaskID) -> Callable[[int], None]:
    return lambda done: progress.update(task, completed=done)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
