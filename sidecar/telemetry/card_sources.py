"""Where a host's cards are read: an exporter's page, or this host's own driver."""

from __future__ import annotations

import asyncio
from typing import Protocol

from sidecar.telemetry import dcgm
from sidecar.telemetry.http import Fetcher, FetchError
from sidecar.telemetry.large_pages import PageTime
from sidecar.telemetry.nvml import Nvml, NvmlUnavailableError
from sidecar.telemetry.readings import Card


class SourceError(Exception):
    """The cards cannot be read now; the text says why."""


class CardSource(Protocol):
    """Reads the cards of one host."""

    @property
    def rest_ms(self) -> float:
        """How long the next look rests at least, since this one took long."""

    async def read(self) -> tuple[str, list[Card]]:
        """(who says it, all cards). Raises SourceError."""

    def close(self) -> None:
        """Let go of what it holds."""


class ExporterSource:
    """A DCGM exporter, or the agent, over HTTP."""

    def __init__(self, url: str, fetcher: Fetcher) -> None:
        self._url = url
        self._fetcher = fetcher
        self._reader = dcgm.Reader()
        self._time = PageTime()

    @property
    def rest_ms(self) -> float:
        """As in `CardSource`."""
        return self._time.rest_ms

    async def read(self) -> tuple[str, list[Card]]:
        """As in `CardSource`."""
        try:
            answer = await self._fetcher.get_url(self._url)
        except FetchError as error:
            raise SourceError(str(error)) from None
        if answer.status != 200:
            raise SourceError(f"{self._url} answers {answer.status}")
        who, cards = await self._time.spend(len(answer.body), lambda: self._reader.read(answer.body))
        if not cards:
            raise SourceError(f"{self._url} shows no GPU: is it the DCGM exporter's /metrics?")
        return who, cards

    def close(self) -> None:
        """As in `CardSource`."""


class DriverSource:
    """The driver of this host, through NVML. Its calls block for some ms, so they run in a thread."""

    rest_ms = 0.0

    def __init__(self, library: Nvml | None = None) -> None:
        self._library = library or Nvml()

    async def read(self) -> tuple[str, list[Card]]:
        """As in `CardSource`."""
        try:
            return "nvml", await asyncio.to_thread(self._library.read)
        except NvmlUnavailableError as error:
            raise SourceError(str(error)) from None

    def close(self) -> None:
        """As in `CardSource`."""
        self._library.close()
