"""What the admin API changed, and how it is kept.

Every change is an entry: `backend:<id>` (a whole configuration, or null for a removed one), `drain:<id>`
(true or false) and `policy`. The entries lie over `tokenweir.yaml` and are written, atomically, to
`tokenweir.state.json` in the same folder (in `state_dir` where that folder is read-only; after `other.yaml`
`other.state.json`), and to Redis,
from where the other sidecars take them into their own files.

Conflicts:

- The later word wins. With an entry goes a digest of what this sidecar's `tokenweir.yaml` said of its
  subject when the entry came; when the file says something else now, somebody has edited it since: the file
  wins and the entry is dropped, here and at the other sidecars.
- A sidecar that meets an entry for the first time in Redis goes by the digest of the sidecar that made it:
  where its own file says something else of the subject and was written after the entry, the file wins.
- A backend of the API with the URL of another one in `tokenweir.yaml` is left out: the file wins.
- How an engine is restarted (`actuator`) and where its weights are (`weights`) is said by `tokenweir.yaml`
  alone: they name programs, sockets and files of this host, which neither the admin API nor Redis may choose.
- Two sidecars: per entry the newest wins. Times are wall times, made to rise over every entry that was seen.
- A damaged file is set aside as `tokenweir.state.json.damaged`, with an error in the log; the file's
  entries come back from Redis where another copy is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import structlog
from pydantic import ValidationError

from sidecar.changes import Changes, Entry, beside, in_order, rank, read_file
from sidecar.clock import wall_ms
from tokenweir.atomic_file import write_atomically
from tokenweir.config.models import BackendConfig, Config
from tokenweir.contract import names
from tokenweir.contract.records import Policy

log = structlog.get_logger(__name__)

FORGET_MS: Final = 30 * 24 * 3_600_000
"""How long an entry that says "nothing" (a dropped change) is kept, so that no other sidecar revives it."""
MOST_ENTRIES: Final = 10_000
POLICY_KEYS: Final = {"policy", "serve_by"}


class Store:
    """The changes over one configuration, the file `path`. `edited_ms` is the wall time of its last edit."""

    def __init__(self, config: Config, path: Path, state_dir: Path, edited_ms: int = 0) -> None:
        self._config = config
        self._edited_ms = edited_ms
        self._path = beside(path, state_dir)
        kept = read_file(self._path)
        self._entries = {name: entry for name, entry in kept.entries.items() if self._kept(name, entry)}
        self._bases = {name: kept.bases.get(name, "") for name in self._entries}
        self.rebase(config, edited_ms)

    @property
    def path(self) -> Path:
        """The file that holds the changes."""
        return self._path

    def dump(self) -> str:
        """All entries as they go into Redis and the file. Equal entries give equal text."""
        return Changes(entries=in_order(self._entries)).model_dump_json(by_alias=True, exclude={"bases"})

    @property
    def base(self) -> Config:
        """The configuration without the changes."""
        return self._config

    def written(self, backend_id: str) -> BackendConfig | None:
        """What the configuration itself says of a backend."""
        return next((backend for backend in self._config.backends if backend.id == backend_id), None)

    # What holds now

    def backends(self) -> list[BackendConfig]:
        """The backends of the configuration with the changes over them, in a stable order."""
        return self._over(self._entries)

    def _over(self, entries: Mapping[str, Entry]) -> list[BackendConfig]:
        found = {backend.id: backend for backend in self._config.backends}
        owner = {backend.url: backend.id for backend in self._config.backends}
        for name, entry in sorted(entries.items()):
            kind, _, subject = name.partition(":")
            if kind != "backend" or entry.dropped:
                continue
            if entry.value is None:
                found.pop(subject, None)
                continue
            backend = BackendConfig.model_validate(entry.value)
            if owner.get(backend.url, subject) == subject:
                written = found.get(subject)
                if written is not None:
                    kept = {key: getattr(written, key) for key in BackendConfig.file_only()}
                    backend = backend.model_copy(update=kept)
                found[subject] = backend
        return list(found.values())[: names.MAX_BACKENDS]

    def draining(self) -> set[str]:
        """Ids of the backends that are drained."""
        return {
            name.removeprefix("drain:")
            for name, entry in self._entries.items()
            if name.startswith("drain:") and entry.value is True
        }

    def config(self) -> Config:
        """The configuration with the changes over it."""
        update: dict[str, Any] = {"backends": self.backends()}
        entry = self._entries.get("policy")
        if entry is not None and not entry.dropped:
            update["policy"] = entry.value["policy"]
            update["serve_by"] = Policy(entry.value["serve_by"])
        return self._config.model_copy(update=update)

    # Changes

    def set_backend(self, backend: BackendConfig) -> None:
        """Add a backend, or put another configuration in its place; what only the file says stays."""
        value = backend.model_dump(mode="json", exclude_unset=True, exclude=BackendConfig.file_only())
        self._put({f"backend:{backend.id}": value})

    def remove_backend(self, backend_id: str) -> None:
        """Remove a backend, whoever named it."""
        changes: dict[str, Any] = {f"backend:{backend_id}": None}
        if f"drain:{backend_id}" in self._entries:
            changes[f"drain:{backend_id}"] = False
        self._put(changes)

    def set_draining(self, backend_id: str, draining: bool) -> None:
        """Drain a backend, or end its drain."""
        self._put({f"drain:{backend_id}": draining})

    def set_policy(self, policy: str, serve_by: str) -> None:
        """Serve by another policy (`shadow:NAME`: by `serve_by`, with NAME only logged)."""
        self._put({"policy": {"policy": policy, "serve_by": serve_by}})

    def merge(self, text: str | bytes | None) -> tuple[bool, bool]:
        """Take another sidecar's entries. Returns (whether something changed here, whether the other lacks
        something). A text that is no set of entries counts as lacking everything."""
        theirs: dict[str, Entry] = {}
        if text:
            try:
                theirs = Changes.model_validate_json(text).entries
            except ValidationError as error:
                log.warning("foreign_changes_refused", problem=str(error.errors(include_url=False)[:1]))
        entries, bases = dict(self._entries), dict(self._bases)
        for name, entry in list(theirs.items())[:MOST_ENTRIES]:
            mine = self._entries.get(name)
            if (mine is None or rank(entry) > rank(mine)) and self._valid(name, entry):
                entries[name], bases[name] = entry, self._digest(name)
                if self._outdated(name, entry):
                    log.warning("change_dropped", entry=name, reason="tokenweir.yaml was edited after it")
                    entries[name] = Entry(time_ms=self._now(), dropped=True)
        changed = entries != self._entries
        if changed:
            try:
                self._commit(entries, bases)
            except OSError as error:
                # It holds all the same: another sidecar has it, and Redis.
                log.error("changes_not_written", file=str(self._path), reason=str(error))
                self._entries, self._bases = entries, bases
        lacking = any(
            name not in theirs or rank(entry) > rank(theirs[name]) for name, entry in self._entries.items()
        )
        return changed, lacking

    def _outdated(self, name: str, entry: Entry) -> bool:
        """Whether this sidecar's file says something else than where an entry was made, and is newer."""
        if entry.dropped or entry.base is None or entry.time_ms >= self._edited_ms:
            return False
        return entry.base != self._digest(name)

    def rebase(self, config: Config, edited_ms: int = 0) -> None:
        """Lay the changes over a configuration that was read anew: entries whose subject it has changed since
        are dropped, with a line in the log. Raises OSError, and leaves everything as it was, where that
        cannot be written."""
        before = self._config, self._edited_ms
        self._config, self._edited_ms = config, edited_ms
        entries = dict(self._entries)
        for name, entry in self._entries.items():
            if not entry.dropped and self._bases.get(name, "") != self._digest(name):
                log.warning("change_dropped", entry=name, reason="tokenweir.yaml was edited after it")
                entries[name] = Entry(time_ms=self._now(), dropped=True)
        if entries == self._entries:
            return
        try:
            self._commit(entries, self._bases)
        except OSError:
            self._config, self._edited_ms = before
            raise

    def _put(self, changes: Mapping[str, Any]) -> None:
        """Keep values by entry. Raises OSError where they cannot be written: a change that would be lost with
        the process is refused instead of half made."""
        if len(self._entries.keys() | changes.keys()) > MOST_ENTRIES:
            raise ValueError(f"more than {MOST_ENTRIES} changes are kept; write them into tokenweir.yaml")
        now = self._now()
        digests = {name: self._digest(name) for name in changes}
        made = {name: Entry(time_ms=now, value=value, base=digests[name]) for name, value in changes.items()}
        self._commit({**self._entries, **made}, {**self._bases, **digests})

    def _commit(self, entries: dict[str, Entry], bases: dict[str, str]) -> None:
        """Write the entries, and only then let them hold."""
        entries = self._without_idle(entries)
        bases = {name: digest for name, digest in bases.items() if name in entries}
        changes = Changes(entries=in_order(entries), bases=bases)
        write_atomically(self._path, changes.model_dump_json(by_alias=True, indent=2) + "\n", 0o600)
        self._entries, self._bases = entries, bases

    def _now(self) -> int:
        return max([wall_ms(), *(entry.time_ms + 1 for entry in self._entries.values())])

    def _digest(self, name: str) -> str:
        kind, _, subject = name.partition(":")
        if kind == "policy":
            return _hash({"policy": self._config.policy, "serve_by": self._config.serve_by.value})
        if kind == "backend":
            for backend in self._config.backends:
                if backend.id == subject:
                    # Only what is written there: the new defaults of a new release are no edit.
                    return _hash(backend.model_dump(mode="json", exclude_unset=True))
        return ""

    def _valid(self, name: str, entry: Entry) -> bool:
        """Whether an entry from outside can be laid over the configuration."""
        kind, _, subject = name.partition(":")
        try:
            if kind == "backend":
                return entry.value is None or (
                    not BackendConfig.file_only() & set(entry.value)
                    and BackendConfig.model_validate(entry.value).id == subject
                )
            if kind == "policy":
                return (
                    entry.dropped or set(Config.model_validate(entry.value).model_fields_set) == POLICY_KEYS
                )
            return kind == "drain" and (entry.dropped or isinstance(entry.value, bool))
        except ValidationError:
            return False

    def _kept(self, name: str, entry: Entry) -> bool:
        """Whether an entry of the file can be laid over the configuration; else the log says so."""
        valid = self._valid(name, entry)
        if not valid:
            log.error("state_entry_refused", file=str(self._path), entry=name)
        return valid

    def _without_idle(self, entries: dict[str, Entry]) -> dict[str, Entry]:
        """Leave out what has said nothing for long: dropped entries, and drains of backends that are gone."""
        limit = wall_ms() - FORGET_MS
        known = {backend.id for backend in self._over(entries)}

        def speaks(name: str, entry: Entry) -> bool:
            idle = entry.dropped or entry.value is False
            orphan = name.startswith("drain:") and name.removeprefix("drain:") not in known
            return not (idle or orphan) or entry.time_ms >= limit

        return {name: entry for name, entry in entries.items() if speaks(name, entry)}


def _hash(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
