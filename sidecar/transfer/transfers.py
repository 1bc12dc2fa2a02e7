"""Brings the service and its adapter in line with the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from sidecar.transfer.agent import KvAgents
from sidecar.transfer.calls import Calls
from sidecar.transfer.lmcache import LmcacheController
from sidecar.transfer.port import Adapter, End
from sidecar.transfer.recompute import Recompute
from sidecar.transfer.service import Service
from sidecar.transfer.vllm import RemotePrefill
from tokenweir.config import ConfigError
from tokenweir.config.transfer import TransferConfig
from tokenweir.contract.records import TransferAdapter
from tokenweir.secret_file import read_secret

log = structlog.get_logger(__name__)

AGAIN_S: Final = 5.0
"""What could not be opened is tried again so much later."""


def adapter_of(config: TransferConfig, calls: Calls, folder: Path) -> Adapter:
    """The configured adapter. Raises ConfigError where a file cannot be read."""
    if config.adapter is TransferAdapter.LMCACHE:
        return LmcacheController(calls, config.controller or "", config.location)
    if config.adapter is TransferAdapter.VLLM:
        return RemotePrefill(calls)
    if config.adapter is TransferAdapter.AGENT:
        key = "sessions: transfer: token_file"
        token = read_secret(folder / config.token_file, key) if config.token_file else None
        return KvAgents(calls, token)
    return Recompute()


class Transfers:
    """The service of one sidecar. `run` follows what `follow` was told last."""

    def __init__(self, socket: Path, folder: Path, end_of: Callable[[str], End]) -> None:
        self._socket, self._folder, self._end_of = socket, folder, end_of
        self._wanted = TransferConfig()
        self._served = TransferConfig()
        self._changed = asyncio.Event()
        self._calls: Calls | None = None
        self._service: Service | None = None
        self._told = ""
        """Why it could not be opened; told once."""

    def follow(self, config: TransferConfig) -> None:
        """Have this configuration put into effect."""
        self._wanted = config
        self._changed.set()

    async def run(self) -> None:
        """Follow the configuration for ever."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._wanted == self._served:
                continue
            try:
                await self._open(self._wanted)
            except (ConfigError, OSError) as error:
                if str(error) != self._told:
                    self._told = str(error)
                    log.error("kv_transfer_not_served", socket=str(self._socket), reason=str(error))
                await asyncio.sleep(AGAIN_S)
                self._changed.set()

    async def _open(self, wanted: TransferConfig) -> None:
        await self.stop()
        if wanted.adapter is not TransferAdapter.NONE:
            self._calls = Calls()
            service = Service(self._socket, adapter_of(wanted, self._calls, self._folder), self._end_of)
            await service.open()
            self._service, self._told = service, ""
            log.info("kv_transfer_served", adapter=wanted.adapter.value)
        self._served = wanted

    async def stop(self) -> None:
        """Serve no more."""
        self._served = TransferConfig()
        if self._service is not None:
            await self._service.close()
            self._service = None
        if self._calls is not None:
            await self._calls.close()
            self._calls = None
