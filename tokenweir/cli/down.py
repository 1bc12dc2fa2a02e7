"""`down`: stops what `up` started, and nothing else."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from tokenweir.cli.options import DEFAULT_CONFIG, ConfigPath, told
from tokenweir.cli.progress import Progress
from tokenweir.config import Config, ConfigError
from tokenweir.stack import launch
from tokenweir.stack.settings import read
from tokenweir.stack.state_dir import StateDir, locate


def _state(console: Console, config: Path) -> StateDir:
    """Where the pid files are. A configuration that cannot be read any more must not keep things running."""
    try:
        return read(config).state
    except ConfigError as error:
        state = locate(config, Config())
        console.print(f"{error}\nlooking in {state.root} for what runs", markup=False, style="yellow")
        return state


def down(config: ConfigPath = DEFAULT_CONFIG) -> None:
    """Stop what `up` started. Streams in progress have ten seconds to end."""
    console = Console(highlight=False)
    with told():
        state = _state(console, config)
        if not state.run.is_dir():
            console.print("nothing runs")
            return
        with launch.exclusively(state.run), Progress(console, {}) as progress:
            count = launch.take_down(state.run, progress.report)
        console.print(f"stopped {count} processes" if count else "nothing runs")
