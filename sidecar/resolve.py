"""Turns the backends' host names into addresses: gateways can only be given addresses."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from sidecar.clock import monotonic_ms

log = structlog.get_logger(__name__)

REFRESH_MS: Final = 30_000
"""A resolver does not pass on how long an answer holds; this is how long a name is believed."""
RETRY_MS: Final = 1000
"""Soonest that a name is looked up again after it was, when its backend fails."""

Lookup = Callable[[str], Awaitable[list[str]]]


async def system_lookup(host: str) -> list[str]:
    """All addresses of a name by the system's resolver. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(item[4][0]) for item in found]


def choose(addresses: list[str], current: str | None) -> str | None:
    """One of several addresses: the present one while it is still among them, else the first, IPv4 before
    IPv6 and numerically, so that every sidecar chooses the same."""
    usable = sorted(
        {_address(text) for text in addresses if "%" not in text}, key=lambda a: (a.version, int(a))
    )
    texts = [str(address) for address in usable]
    return current if current in texts else next(iter(texts), None)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(text)


def literal(host: str) -> str | None:
    """The address that `host` already is, or None for a name."""
    try:
        return str(_address(host))
    except ValueError:
        return None


class Resolver:
    """Addresses by host name, looked up in the background. `changed` is called when one moves."""

    def __init__(self, changed: Callable[[], None], lookup: Lookup = system_lookup) -> None:
        self._changed = changed
        self._lookup = lookup
        self._addresses: dict[str, str | None] = {}
        self._looked_at: dict[str, float] = {}
        self._wake = asyncio.Event()
        self.failures: dict[str, str] = {}
        """Host -> why it does not resolve at present."""

    def address(self, host: str) -> str | None:
        """The address of a host, or None while it is not known. Asking for a new name has it looked up."""
        found = literal(host)
        if found is not None:
            return found
        if host not in self._addresses:
            self._addresses[host] = None
            self._wake.set()
        return self._addresses[host]

    def suspect(self, host: str) -> None:
        """A backend of this name fails: it may have moved."""
        at = self._looked_at.get(host)
        if at is not None and monotonic_ms() - at >= RETRY_MS:
            self._looked_at[host] = float("-inf")
            self._wake.set()

    def keep(self, hosts: set[str]) -> None:
        """Forget the names that no backend has any more."""
        for host in [known for known in self._addresses if known not in hosts]:
            self._addresses.pop(host)
            self._looked_at.pop(host, None)
            self.failures.pop(host, None)

    async def run(self) -> None:
        """Look up for ever what is due."""
        while True:
            await self.refresh()
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), self._next_ms() / 1000)
            except TimeoutError:
                continue

    async def refresh(self) -> None:
        """Look up every name that is due, all at once."""
        now = monotonic_ms()
        due = [
            host
            for host in self._addresses
            if now - self._looked_at.get(host, float("-inf")) >= self._age(host)
        ]
        if due:
            moved = await asyncio.gather(*(self._resolve(host) for host in due))
            if any(moved):
                self._changed()

    async def _resolve(self, host: str) -> bool:
        self._looked_at[host] = monotonic_ms()
        try:
            addresses = await self._lookup(host)
        except OSError as error:
            # The last address may still serve: a name server away is no reason to drop a backend.
            reason = error.strerror or str(error)
            if self.failures.get(host) != reason:
                log.warning("name_not_resolved", host=host, reason=reason)
            self.failures[host] = reason
            return False
        if host not in self._addresses:
            return False
        self.failures.pop(host, None)
        before = self._addresses[host]
        after = choose(addresses, before)
        self._addresses[host] = after
        if after != before:
            log.info("name_resolved", host=host, address=after, before=before, addresses=len(addresses))
        return after != before

    def _age(self, host: str) -> float:
        """A name never resolved, or failing, is tried again soon."""
        return RETRY_MS if self._addresses.get(host) is None or host in self.failures else REFRESH_MS

    def _next_ms(self) -> float:
        now = monotonic_ms()
        waits = [self._looked_at.get(host, now) + self._age(host) - now for host in self._addresses]
        return max(min(waits, default=REFRESH_MS), 50)
