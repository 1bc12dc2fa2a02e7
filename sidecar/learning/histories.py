"""Running figures of outputs by key and by system prompt, for gateways that start and know nothing of them.

The gateways keep such figures themselves, each worker its own, and predict from these
(`core/prediction/history.lua`); what is kept here is of the sampled completions of all of them
together. Keys and prompts are numbers: hashes made by the gateways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from tokenweir.contract.records import Completion, Histories, History

WINDOW: Final = 100
"""Completions that count, as in the gateways: the weight of one falls to 1/e after so many."""
KEPT: Final = 4096
PUBLISHED: Final = 1024
"""Rows that gateways are told, those used last."""
FEWEST: Final = 3
"""Completions from which a row is told."""

Of = Literal["key", "system"]
Name = tuple[Of, str, int]
"""What it is of, the model, the number."""


@dataclass(slots=True)
class Row:
    """Mean and variance of ln(1 + output tokens), newer ones weighing more."""

    count: int = 0
    mean: float = 0.0
    variance: float = 0.0

    def add(self, value: float) -> None:
        """One more output."""
        self.count += 1
        weight = max(1 / self.count, 1 / WINDOW)
        delta = value - self.mean
        self.mean += weight * delta
        self.variance = (1 - weight) * (self.variance + weight * delta * delta)


class SeenHistories:
    """The rows, the one used longest ago forgotten first."""

    def __init__(self) -> None:
        self._rows: dict[Name, Row] = {}
        self.version = 0
        self.changed = False
        """Whether something came since it was last published."""

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, record: Completion) -> None:
        """One believed record; only those whose features are recorded tell whose they are."""
        if record.learned is None:
            return
        numbers: tuple[tuple[Of, int], ...] = (("key", record.key_number), ("system", record.system_number))
        for of, number in numbers:
            if number > 0:
                name: Name = (of, record.model, number)
                row = self._rows.pop(name, None) or Row()
                self._rows[name] = row
                row.add(record.learned)
                self.changed = True
        while len(self._rows) > KEPT:
            del self._rows[next(iter(self._rows))]

    def published(self) -> Histories:
        """What the gateways are told."""
        self.version += 1
        self.changed = False
        found = [(name, row) for name, row in self._rows.items() if row.count >= FEWEST][-PUBLISHED:]
        rows = [
            History(of=of, model=model, number=number, count=row.count, mean=row.mean, variance=row.variance)
            for (of, model, number), row in found
        ]
        return Histories(version=self.version, rows=rows)

    def restore(self, text: Any) -> None:
        """Go on from what was published: where another sidecar has led meanwhile, by what that one saw.
        Raises ValueError on what is no such document."""
        document = Histories.read(text)
        later = document.version > self.version
        self.version = max(self.version, document.version)
        for row in document.rows:
            name: Name = (row.of, row.model, row.number)
            if later or name not in self._rows:
                self._rows[name] = Row(row.count, row.mean, row.variance)
