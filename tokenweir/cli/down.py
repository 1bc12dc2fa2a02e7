"""`down`: stops what `up` started, and nothing else."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from tokenweir.cli.options import DEFAULT_CONFIG, ConfigPath, told
from tokenweir.cli.progress import Progress
from tokenweir.config import ConfigError
from tokenweir.stack import launch
from tokenweir.stack.errors import StackError
from tokenweir.stack.settings import read
from tokenweir.stack.state_dir import StateDir, presumed


def _state(console: Console, config: Path) -> tuple[StateDir, bool]:
    """Where the pid files are, and whether the configuration says so: one that cannot be read any more must
    not keep things running."""
    try:
        return read(config).state, True
    except ConfigError as error:
        state = presumed(config)
        console.print(f"{error}\nlooking in {state.root} for what runs", markup=False, style="yellow")
        return state, False


def down(config: ConfigPath = DEFAULT_CONFIG) -> None:
    """Stop what `up` started for this configuration. Streams in progress have ten seconds to end."""
    console = Console(highlight=False)
    with told():
        state, known = _state(console, config)
        count = 0
        if state.run.is_dir():
            if launch.is_another_s(state, config.resolve()):
                raise StackError(
                    f"what runs from {state.root} was started for {state.owner}, not for {config}; nothing "
                    f"was stopped. To stop it: make down CONFIG={state.owner}"
                )
            with launch.exclusively(state.run), Progress(console, {}) as progress:
                count = launch.take_down(state.run, progress.report)
        if count or known:
            console.print(f"stopped {count} processes" if count else "nothing runs")
            return
        console.print(
            f"nothing runs from {state.root}; if {config} had another `state_dir`, mend the file first",
            style="red",
            soft_wrap=True,
        )
    raise typer.Exit(1)
