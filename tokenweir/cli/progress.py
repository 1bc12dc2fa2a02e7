"""Shows what happens to each part: a live table on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

STYLES = {"ready": "green", "running": "green", "stopped": "green", "reloaded": "green", "note": "yellow"}
QUIET_S = 3.0
"""Where there is no terminal, a part that still starts is named again this often."""


class Progress:
    """`report(part, what, details)` while the context is open."""

    def __init__(self, console: Console, titles: dict[str, str]) -> None:
        self._console = console
        self._titles = titles
        self._rows: dict[str, tuple[str, str]] = {}
        self._said: dict[str, float] = {}
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=8)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def report(self, name: str, what: str, details: str) -> None:
        """What happens to a part."""
        before = self._rows.get(name, ("", ""))[0]
        self._rows[name] = (what, details)
        if self._console.is_terminal:
            return
        now = time.monotonic()
        if what != before or now - self._said.get(name, now) > QUIET_S:
            self._said[name] = now
            text = f"{self._titles.get(name, name)}: {what}{f' ({details})' if details else ''}"
            self._console.print(text, markup=False, soft_wrap=True)

    def _table(self) -> Table:
        table = Table(box=None, show_header=False, pad_edge=False)
        for name, (what, details) in self._rows.items():
            busy = what in {"starting", "stopping"}
            mark = Spinner("dots") if busy else "[green]✓[/]" if what in STYLES else ""
            table.add_row(
                mark, self._titles.get(name, name), f"[{STYLES.get(what, 'default')}]{what}[/]", details
            )
        return table
