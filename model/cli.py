"""`train` and `rollback`: what `make train` runs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import redis
import typer
from rich.console import Console
from rich.table import Table

from model import bootstrap, calibration, records, training_run
from model.core import Core
from model.dataset import Dataset
from model.evaluation import Scores
from model.publication import KEPT, InService, Publication, RollbackError
from model.training import TooFewError
from model.training_run import Trained
from tokenweir.atomic_file import write_atomically
from tokenweir.config import ConfigError
from tokenweir.recorded import ENOUGH, files
from tokenweir.recorded import FOLDER as RECORDED
from tokenweir.redis_options import redis_options
from tokenweir.stack import sidecar_server
from tokenweir.stack.settings import Settings, read

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "model"
"""Folder of the state directory for models and reports."""
LOCK = "training.lock"
TIMEOUT_S = 5.0

app = typer.Typer(
    help="Train the predictor of output lengths.", no_args_is_help=True, pretty_exceptions_show_locals=False
)
ConfigPath = Annotated[
    Path, typer.Option("--config", "-c", envvar="TOKENWEIR_CONFIG", help="The configuration file.")
]
DEFAULT_CONFIG = ROOT / "tokenweir.yaml"
SHOWN_GAINS = 8
MODE = 0o644
REPORT = "report.json"


def _fail(text: str) -> typer.Exit:
    sys.stderr.write(f"error: {text}\n")
    return typer.Exit(1)


def write_down(settings: Settings, console: Console) -> None:
    """Have the sidecar write what it has in memory; where it does not answer, what is on disk will do."""
    try:
        httpx.post(
            f"{sidecar_server.admin_url(settings)}/api/predictor/flush",
            headers=sidecar_server.admin_headers(settings),
            timeout=TIMEOUT_S,
            trust_env=False,
        ).raise_for_status()
    except (httpx.HTTPError, ConfigError) as error:
        console.print(
            f"the sidecar was not asked for its newest completions ({error}); those on disk are used",
            style="yellow",
        )


def choose(settings: Settings, given: Path | None, core: Core, console: Console) -> tuple[Dataset, str, bool]:
    """The data to train from, what it is, and whether its order is that of time. Raises DataError."""
    origin = given or settings.state.root / RECORDED
    if given is None:
        write_down(settings, console)
    recorded = 0
    if given is not None or files(origin):
        found = records.load(origin, core)
        for reason, count in found.dropped.most_common():
            console.print(f"left out: {count} rows ({reason})", style="yellow")
        recorded = len(found.data)
        if given is not None or recorded >= ENOUGH:
            return found.data, str(origin), True
    console.print(f"{recorded} completions are recorded, {ENOUGH} are wanted: training from the bundled set")
    return bootstrap.load(core), "the bundled set (recorded prompts with public sources)", False


@app.command()
def train(
    config: ConfigPath = DEFAULT_CONFIG,
    data: Annotated[
        Path | None, typer.Option(help="JSON lines or Parquet; default: what is recorded")
    ] = None,
    force: Annotated[bool, typer.Option(help="publish even a model that is worse")] = False,
    publish: Annotated[bool, typer.Option(help="--no-publish: only train and report")] = True,
) -> None:
    """Train, judge, publish. Ends with status 1 where nothing was published, with 130 on Ctrl-C."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    try:
        settings = read(config)
        with alone(settings.state.root / FOLDER, console):
            _train(settings, data, force, publish, console)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; nothing was published\n")
        raise typer.Exit(130) from None
    except (ConfigError, records.DataError, TooFewError, bootstrap.StaleBootstrapError, OSError) as error:
        raise _fail(str(error)) from None


@contextlib.contextmanager
def alone(folder: Path, console: Console) -> Iterator[None]:
    """Wait until no other training of this installation runs (the sidecar trains too): it would take twice as
    long, and each would be compared with a model that is not in service any more. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print("another training runs: waiting for its end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _train(settings: Settings, data: Path | None, force: bool, publish: bool, console: Console) -> None:
    core = Core()
    rows, origin, by_time = choose(settings, data, core, console)
    service = _in_service(settings, publish)
    console.print(f"training from {len(rows)} outputs: {origin}")
    with console.status("training") as status:
        trained = training_run.run(
            rows,
            core,
            about={"data": origin, "rows": len(rows)},
            in_service=service,
            by_time=by_time,
            progress=lambda step: _tell(console, status, step),
        )
    folder = settings.state.root / FOLDER
    report(trained, service, console)
    with uninterrupted():
        save(trained, folder)
        console.print(f"report and calibration plot: {folder}", soft_wrap=True)
        if publish:
            _publish(settings, trained, force)
            console.print(f"published [bold]{trained.version}[/]; gateways take it within two seconds")


def _publish(settings: Settings, trained: Trained, force: bool) -> None:
    worse = trained.worse_than
    if worse and not force:
        raise _fail(f"not published: the new model is worse than {worse}; FORCE=1 publishes it all the same")
    try:
        _publication(settings).publish(trained.version, trained.document, trained.seen)
    except redis.RedisError as error:
        raise _fail(f"not published: Redis: {error}") from None


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C is not heard inside: what is under way takes a moment, and is done whole or not at all."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@app.command()
def rollback(config: ConfigPath = DEFAULT_CONFIG) -> None:
    """Put the model before back into service."""
    try:
        settings = read(config)
        with uninterrupted():
            version = _publication(settings).roll_back()
    except (ConfigError, RollbackError, OSError) as error:
        raise _fail(str(error)) from None
    except redis.RedisError as error:
        raise _fail(f"Redis: {error}") from None
    Console(highlight=False).print(f"{version} is in service again")


def _tell(console: Console, status: Any, step: str) -> None:
    status.update(f"training: {step}")
    if not console.is_terminal:
        console.print(f"  {step}")


def _publication(settings: Settings) -> Publication:
    options = redis_options(settings.config.redis, settings.path.parent, TIMEOUT_S)
    return Publication(redis.Redis(**options))


def _in_service(settings: Settings, needed: bool) -> InService | None:
    """The model in service. Where Redis cannot be asked: an error if it is needed, else None."""
    try:
        return _publication(settings).in_service()
    except (ConfigError, redis.RedisError) as error:
        if needed:
            raise _fail(f"Redis: {error}; start Tokenweir (make up), or train with --no-publish") from None
        return None


def report(trained: Trained, service: InService | None, console: Console) -> None:
    """Print how the new model does on rows that its twin did not see, beside the model in service."""
    table = Table(title=f"{trained.version} on {trained.scores.rows} held-out outputs (tokens)")
    in_service = service.version if service else "in service"
    for column in ("", "this model", in_service, "running figures", "best"):
        table.add_column(column, justify="left" if column == "" else "right")
    for name, digits, best in (
        ("mae", 1, 0),
        ("pinball", 2, 0),
        ("tau", 3, 1),
        ("coverage_q90", 3, 0.9),
        ("bias", 3, 1),
        ("precision", 3, 1),
        ("recall", 3, 1),
    ):
        cells = [
            "" if scores is None else f"{getattr(scores, name):.{digits}f}"
            for scores in (trained.scores, trained.service, trained.running)
        ]
        table.add_row(name, *cells, f"{best:g}")
    console.print(table)
    found = sorted(trained.gains.items(), key=lambda item: -item[1])[:SHOWN_GAINS]
    console.print("largest features: " + ", ".join(f"{name} {100 * gain:.0f} %" for name, gain in found))


def _plain(scores: Scores | None) -> dict[str, Any] | None:
    return None if scores is None else scores.plain()


def save(trained: Trained, folder: Path) -> None:
    """Keep the model, its figures and the calibration plot, and as many models of before as Redis does."""
    write_atomically(folder / f"{trained.version}.json", trained.document, MODE)
    figures = {
        "version": trained.version,
        "model": _plain(trained.scores),
        "in_service": _plain(trained.service),
        "running_figures": _plain(trained.running),
        "gains": trained.gains,
    }
    write_atomically(folder / REPORT, json.dumps(figures, indent=2) + "\n", MODE)
    calibration.plot(trained.levels, trained.reached, trained.gains, folder / "calibration.png")
    models = sorted(path for path in folder.glob("*.json") if path.name != REPORT)  # by their times
    for path in models[: -KEPT - 1]:
        path.unlink(missing_ok=True)
