"""Reads the completion records that gateways put on the stream, and keeps the running figures.

Only the leader reads, always under the same consumer name, so whoever takes over finds in "its own" pending
entries what the one before had read and not acknowledged. Entries are acknowledged in the script that
stores the figures made of them: a batch is counted once, whenever a sidecar dies. A batch that a gateway
sent twice, and records that never came, show by the numbers of their source.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, Final

import redis.asyncio as aioredis
import structlog
from redis.exceptions import ResponseError

from sidecar.clock import monotonic_ms, wall_ms
from sidecar.leader import Leader
from sidecar.learning import records
from sidecar.learning.deviation import Deviation
from sidecar.learning.figures import Figures
from sidecar.learning.histories import SeenHistories
from sidecar.learning.recording import Recording
from sidecar.learning.sources import Sources
from sidecar.redis_access import text_of
from tokenweir.atomic_file import write_atomically
from tokenweir.contract import names
from tokenweir.contract.records import Completion, Stats

log = structlog.get_logger(__name__)

CONSUMER: Final = "leader"
ENTRIES_AT_ONCE: Final = 16
CHECKPOINT_MS: Final = 1000
MOST_UNACKNOWLEDGED: Final = 512
"""Entries after which a checkpoint does not wait for its time."""
SAVE_MS: Final = 30_000
HISTORIES_MS: Final = 60_000
"""How often the figures of keys and system prompts are published; gateways that start read them."""
LATE_MS: Final = 60_000
"""A record that comes later tells the decisions nothing about now."""
FILE: Final = "learned.json"
SCHEMA: Final = 1

Completed = Callable[[Completion, float], None]
"""Called with each record and when its request ended, monotonic ms."""
Entry = tuple[bytes, Mapping[bytes, bytes] | None]


class Completions:
    """The consumer. `step` is called while leading; it raises RedisError or NotLeaderError."""

    def __init__(
        self,
        client: aioredis.Redis,
        leader: Leader,
        backends: Callable[[], Container[str]],
        completed: Completed,
        state_dir: Path,
    ) -> None:
        self._client = client
        self._leader = leader
        self._backends = backends
        self._completed = completed
        self._file = state_dir / FILE
        self.figures = Figures()
        self.sources = Sources()
        self.deviation = Deviation()
        self.recording = Recording(state_dir)
        self.histories = SeenHistories()
        self._histories_at = float("-inf")
        self.version = 0
        self.batches = 0
        self.records = 0
        self.poisoned: Counter[str] = Counter()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """(backend, outcome) -> records."""
        self._fresh = True
        self._fence = 0
        self._applied: dict[str, None] = {}
        self._checkpoint_at = float("-inf")
        self._saved_at = monotonic_ms()
        self._dirty = False
        self._load_file()

    @property
    def lost(self) -> int:
        """Records that a gateway made and that did not come in time."""
        return self.sources.lost

    def stats(self) -> Stats:
        """The figures as they are published."""
        return Stats(version=self.version, models=self.figures.published())

    async def step(self, stats_missing: bool = False) -> bool:
        """Read what is there, and store the figures when due. Returns whether more may be waiting.
        `stats_missing`: Redis has lost them."""
        if self._leader.fence != self._fence:
            await self._begin()
        entries = await self._read(">")
        for entry in entries:
            self._apply(entry)
            await asyncio.sleep(0)
        due = (self._dirty or self.sources.missing) and (
            monotonic_ms() - self._checkpoint_at >= CHECKPOINT_MS or len(self._applied) >= MOST_UNACKNOWLEDGED
        )
        if due or stats_missing:
            await self.checkpoint()
        if self.histories.changed and monotonic_ms() - self._histories_at >= HISTORIES_MS:
            self._histories_at = monotonic_ms()
            await self._client.set(names.HISTORIES, self.histories.published().dump())
        return len(entries) == ENTRIES_AT_ONCE

    async def checkpoint(self) -> None:
        """Store the figures and acknowledge what they hold; then count what somebody else read in our
        name."""
        self.version += 1
        self.sources.settle(wall_ms())
        done = list(self._applied)
        try:
            await self._leader.checkpoint(self.stats().dump(), self._dump(), done)
        except ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
        for entry_id in done:
            self._applied.pop(entry_id, None)
        self._dirty = False
        self._checkpoint_at = monotonic_ms()
        # A former leader that was asleep may have been handed entries that it must not count any more.
        for entry in await self._read("0"):
            self._apply(entry)
        if monotonic_ms() - self._saved_at >= SAVE_MS:
            self.save()

    def save(self) -> None:
        """Keep a copy of the figures on disk, for the day when Redis is empty."""
        self._saved_at = monotonic_ms()
        try:
            write_atomically(self._file, self._dump(), 0o600)
        except OSError as error:
            log.warning("learned_not_saved", file=str(self._file), reason=str(error))

    async def _begin(self) -> None:
        """Go on from the stored figures; what was counted after them is still pending and comes again."""
        await self._make_group()
        text = await text_of(self._client, names.LEARNED)
        if text is not None:
            self._restore(text, numbers=True)
        await self._restore_histories()
        self._applied.clear()
        self._fence = self._leader.fence
        while entries := [entry for entry in await self._read("0") if entry[0].decode() not in self._applied]:
            for entry in entries:
                self._apply(entry)
            if len(entries) < ENTRIES_AT_ONCE:
                break
            await self.checkpoint()

    async def _restore_histories(self) -> None:
        text = await text_of(self._client, names.HISTORIES)
        if text is None:
            return
        try:
            self.histories.restore(text)
        except ValueError as error:
            log.error("histories_refused", reason=str(error)[:200])

    async def _make_group(self) -> None:
        try:
            await self._client.xgroup_create(
                names.COMPLETIONS, names.COMPLETIONS_GROUP, id="0", mkstream=True
            )
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def _read(self, after: str) -> list[Entry]:
        """Entries of the stream: `>` for new ones, `0` for those handed out and not acknowledged."""
        try:
            answer: Any = await self._client.xreadgroup(
                names.COMPLETIONS_GROUP, CONSUMER, {names.COMPLETIONS: after}, count=ENTRIES_AT_ONCE
            )
        except ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            # Redis was emptied.
            await self._make_group()
            return []
        return [(entry_id, fields) for _, entries in answer or [] for entry_id, fields in entries]

    def _apply(self, entry: Entry) -> None:
        entry_id, fields = entry[0].decode(), entry[1]
        if entry_id in self._applied:
            return
        self._applied[entry_id] = None
        self._dirty = True
        if not fields:
            # Trimmed away while it was pending: the numbers of its source will tell the loss.
            return
        self.batches += 1
        try:
            values = records.batch(fields.get(names.COMPLETIONS_BATCH.encode(), b""))
        except records.PoisonedError as error:
            self.poisoned[str(error)] += 1
            return
        for start, end in self._new(fields, len(values)):
            for value in values[start:end]:
                self._count(value)

    def _new(self, fields: Mapping[bytes, bytes], count: int) -> list[tuple[int, int]]:
        """Which of the batch's records were not counted before, as positions."""
        source = fields.get(names.COMPLETIONS_SOURCE.encode(), b"").decode("utf-8", "replace")[:160]
        first = fields.get(names.COMPLETIONS_FIRST.encode(), b"")
        if not source or not first.isdigit() or len(first) > 15:
            return [(0, count)]
        return self.sources.admit(source, int(first), count, self._fresh, wall_ms())

    def _count(self, value: Any) -> None:
        now = wall_ms()
        try:
            record = records.believe(value, self._backends(), now)
        except records.PoisonedError as error:
            self.poisoned[str(error)] += 1
            return
        self.records += 1
        self.outcomes[record.backend, record.outcome.value] += 1
        self.figures.add(record)
        self.deviation.add(record)
        self.recording.add(record)
        self.histories.add(record)
        self._note(record, now)

    def _note(self, record: Completion, now: int) -> None:
        age = max(0, now - record.time_ms)
        if age < LATE_MS:
            self._completed(record, monotonic_ms() - age)

    def _dump(self) -> str:
        state = {
            "schema": SCHEMA,
            "version": self.version,
            "figures": self.figures.dump(),
            "sources": self.sources.dump(),
        }
        return json.dumps(state, separators=(",", ":"))

    def _restore(self, text: str | bytes, numbers: bool) -> None:
        """Take a dump; `numbers`: the sources' too, which belong to the acknowledgements in Redis."""
        try:
            state = json.loads(text)
            if state["schema"] != SCHEMA:
                raise ValueError(f"schema {state['schema']}")
            figures = Figures.restore(state["figures"])
            sources = Sources.restore(state["sources"])
            self.version = max(self.version, int(state["version"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log.error("learned_refused", reason=str(error)[:200])
            return
        self.figures = figures
        if numbers:
            self.sources, self._fresh = sources, False

    def _load_file(self) -> None:
        try:
            self._restore(self._file.read_text(), numbers=False)
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            log.warning("learned_not_read", file=str(self._file), reason=str(error))
