"""Servers of the outside world that several parts of the sidecar speak to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.unit.sidecar.kubernetes_server import KubernetesServer


@pytest.fixture
async def kubernetes() -> AsyncIterator[KubernetesServer]:
    """A Kubernetes API."""
    server = KubernetesServer()
    runner = web.AppRunner(server.app(), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    yield server
    await runner.cleanup()
