"""What the engine was made to do: which requests it began and which it was told to drop. Benches count with
it."""

from __future__ import annotations

import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

LONGEST = 500_000
"""Request ids that are kept; beyond, the oldest are forgotten (the totals are not)."""


class Journal:
    """Executions and aborts by `X-Request-Id`.

    With a `file` the id of each execution is also appended to it, one a line and at once: that outlives the
    process, however it ends.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file.open("ab", buffering=0) if file else None
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.total = 0
        self.abort_total = 0
        self._executed: OrderedDict[str, int] = OrderedDict()
        self._aborted: OrderedDict[int, dict[str, Any]] = OrderedDict()

    def executed(self, request_id: str) -> None:
        """The engine took a request on."""
        self.total += 1
        if self._file and request_id:
            self._file.write(request_id.encode() + b"\n")
        self._executed[request_id] = self._executed.get(request_id, 0) + 1
        if len(self._executed) > LONGEST:
            self._executed.popitem(last=False)

    def aborted(self, request_id: str, tokens: int) -> None:
        """A client left a request that had produced `tokens` tokens."""
        self.abort_total += 1
        self._aborted[self.abort_total] = {"request_id": request_id, "time": time.time(), "tokens": tokens}
        if len(self._aborted) > LONGEST:
            self._aborted.popitem(last=False)

    def report(self) -> dict[str, Any]:
        """`total` executions, `requests`: id -> times executed (ids that were given only), `aborted` in
        order: `request_id`, `time` (seconds since 1970) and `tokens` produced."""
        return {
            "total": self.total,
            "requests": {request_id: count for request_id, count in self._executed.items() if request_id},
            "abort_total": self.abort_total,
            "aborted": list(self._aborted.values()),
        }
