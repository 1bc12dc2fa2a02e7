"""The telemetry's watches kept in line with the fleet: where each backend is reached, and with which key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from sidecar.backend_files import BackendFiles, Read
from sidecar.control.fleet import Fleet
from sidecar.origins import Origins
from sidecar.resolve import Resolver
from sidecar.telemetry.collector import Collector
from sidecar.telemetry.health import Look
from sidecar.telemetry.http import FetchError, Origin
from sidecar.telemetry.watch import Where
from tokenweir import backend_keys
from tokenweir.config.models import BackendConfig

log = structlog.get_logger(__name__)

FILES_MS: Final = 1000
"""How often the files that backends name are looked at."""


class BackendWatches:
    """The watches of the fleet's members."""

    def __init__(
        self,
        fleet: Fleet,
        collector: Collector,
        resolver: Resolver,
        files: BackendFiles,
        *,
        keys_file: Path,
        listed: Callable[[], tuple[Sequence[BackendConfig], Sequence[BackendConfig]]],
    ) -> None:
        """`keys_file`: where the gateway finds the backends' API keys. `listed` tells the backends as they
        hold now, and as `tokenweir.yaml` has them."""
        self.files = files
        self.unseen: set[str] = set()
        """Backends that were not looked at yet."""
        self._fleet = fleet
        self._collector = collector
        self._resolver = resolver
        self._keys_file = keys_file
        self._listed = listed
        self._read = Read()
        self._origins = Origins(files.folder)

    async def run(self) -> None:
        """Look at the files that backends name for ever."""
        while True:
            await asyncio.sleep(FILES_MS / 1000)
            try:
                if self.files.changed():
                    log.info("backend_files_read")
                    self.read_files()
                    for watch in self._collector.watches.values():
                        watch.hurry()
            except Exception:
                log.exception("backend_files_failed")

    def read_files(self) -> None:
        """Read the keys and certificates that backends name, and hand the keys on to the gateway."""
        before, self._read = self._read, self.files.read(*self._listed())
        for backend_id, problem in self._read.problems.items():
            if before.problems.get(backend_id) != problem:
                log.error("backend_files_unusable", backend=backend_id, problem=problem)
        self._origins.forget()
        try:
            backend_keys.write(self._keys_file, self._read.keys)
        except OSError as error:
            log.error("backend_keys_not_written", file=str(self._keys_file), reason=str(error))

    def sync(self) -> None:
        """Watch exactly the members of the fleet."""
        members = self._fleet.members
        self._resolver.keep({member.config.host for member in members.values()})
        self._origins.keep(set(members))
        before = dict(self._collector.watches)
        self._collector.set_backends(
            {backend_id: (member.config, self._where(backend_id)) for backend_id, member in members.items()}
        )
        for backend_id, watch in self._collector.watches.items():
            members[backend_id].record = watch.record
            members[backend_id].address = self._resolver.address(watch.config.host)
            if before.get(backend_id) is not watch:
                self.unseen.add(backend_id)
        self.unseen &= set(members)

    def addresses_changed(self) -> None:
        """The resolver has found other addresses."""
        for member in self._fleet.members.values():
            member.address = self._resolver.address(member.config.host)
        for watch in self._collector.watches.values():
            if watch.record.answered_at is None:
                watch.hurry()

    def origin(self, backend_id: str) -> Origin | None:
        """Where a backend is reached; None without an address. Raises FetchError where its files cannot be
        used."""
        member = self._fleet.members.get(backend_id)
        if member is None or member.address is None:
            return None
        problem = self._read.problems.get(backend_id)
        if problem is not None:
            raise FetchError(Look.ERROR, problem)
        key = self._read.keys.get(member.config.api_key_file or "")
        return self._origins.of(member.config, member.address, key)

    def _where(self, backend_id: str) -> Where:
        return lambda: self.origin(backend_id)
