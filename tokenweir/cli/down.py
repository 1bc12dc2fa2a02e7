"""`down`: stops what `up` started, and nothing else."""

from __future__ import annotations

from rich.console import Console

from tokenweir.cli.options import DEFAULT_CONFIG, ConfigPath, told
from tokenweir.cli.progress import Progress
from tokenweir.stack import launch
from tokenweir.stack.settings import read


def down(config: ConfigPath = DEFAULT_CONFIG) -> None:
    """Stop what `up` started. Streams in progress have ten seconds to end."""
    console = Console(highlight=False)
    with told():
        state = read(config).state
        if not state.run.is_dir():
            console.print("nothing runs")
            return
        with launch.exclusively(state.run), Progress(console, {}) as progress:
            count = launch.take_down(state.run, progress.report)
        console.print(f"stopped {count} processes" if count else "nothing runs")
