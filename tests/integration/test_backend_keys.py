"""The keys that engines want: from tokenweir.yaml or the admin API, through a running gateway, to them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import yaml

from sidecar import app
from sidecar.control_plane import ControlPlane
from tests.integration.proxy.gateway import Gateway
from tests.integration.servers import PATIENCE, RedisServer, wait_until
from tests.integration.upstream import Answer, Received, Upstream
from tests.ports import free_port
from tokenweir.render import Paths


class KeyedEngine(Upstream):
    """An engine that lets nobody in without its key."""

    def __init__(self, name: str, key: str) -> None:
        super().__init__(name)
        self.key = key
        self.answer = self._answer

    def _answer(self, received: Received) -> Answer:
        if received.path == "/health":
            return Answer()
        if received.headers.get("authorization") != f"Bearer {self.key}":
            return Answer(status=401)
        if received.path == "/v1/models":
            return Answer(body=json.dumps({"data": [{"id": "llama", "object": "model"}]}).encode())
        return Answer(status=404) if received.method == "GET" else Answer()

    def chats(self) -> list[str]:
        """What stood in Authorization of the chats."""
        return [r.headers.get("authorization", "") for r in self.received if r.method == "POST"]


class Stack:
    """A sidecar in this process and a gateway, on one state folder, as `make up` has them."""

    def __init__(self, folder: Path, redis: RedisServer, backends: list[dict[str, object]]) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "secrets").mkdir()
        document = {
            "redis": {"port": redis.port},
            "admin": {"port": free_port()},
            "telemetry": {"interval": "100ms", "timeout": "500ms"},
            "backends": backends,
        }
        (folder / "tokenweir.yaml").write_text(yaml.safe_dump(document))
        self.plane = ControlPlane(folder / "tokenweir.yaml", environment={})
        transport = httpx.ASGITransport(app=app.create(self.plane), client=("127.0.0.1", 1))
        self.admin = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081")
        self.gateway = Gateway(Paths.under(folder / "var").prefix, redis.port, workers=2)

    async def start(self) -> None:
        await self.plane.start()
        await asyncio.to_thread(self.gateway.start)

    async def stop(self) -> None:
        self.gateway.stop()
        await self.admin.aclose()
        await self.plane.stop()

    async def chat(self, backend: str) -> httpx.Response:
        """A chat with a key of the client's own, once the backend is to be seen there."""
        name = f'tokenweir_inflight{{backend="{backend}"}}'

        def usable() -> bool:
            ready = self.gateway.get("/readyz").status_code == 200
            return ready and name in self.gateway.metrics()

        await asyncio.to_thread(wait_until, usable, PATIENCE, f"{backend} in rotation")
        await asyncio.sleep(1)
        return await asyncio.to_thread(self.gateway.post, headers={"Authorization": "Bearer sk-client"})


@pytest.fixture
async def stacks(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[Stack]]:
    monkeypatch.setattr("tokenweir.render.paths.reachable", lambda _: True)
    made: list[Stack] = []
    yield made
    for stack in made:
        await stack.stop()


@pytest.fixture
async def engine() -> AsyncIterator[KeyedEngine]:
    made = KeyedEngine("gpu-a", "sk-engine")
    yield made
    made.stop()


async def test_a_key_added_by_the_admin_api_reaches_the_engine_and_the_client_s_does_not(
    tmp_path: Path, redis_server: RedisServer, stacks: list[Stack], engine: KeyedEngine
) -> None:
    stack = Stack(tmp_path / "one", redis_server, [])
    stacks.append(stack)
    await stack.start()
    (stack.folder / "secrets/a").write_text("sk-engine\n")
    body = {"id": "a", "url": f"http://127.0.0.1:{engine.port}", "api_key_file": "secrets/a"}
    assert (await stack.admin.post("/api/backends", json=body)).status_code == 201
    assert (await stack.chat("a")).status_code == 200
    assert engine.chats() == ["Bearer sk-engine"]


async def test_a_key_that_is_renewed_is_followed_by_the_sidecar_and_the_gateway(
    tmp_path: Path, redis_server: RedisServer, stacks: list[Stack], engine: KeyedEngine
) -> None:
    url = f"http://127.0.0.1:{engine.port}"
    stack = Stack(tmp_path / "one", redis_server, [{"id": "a", "url": url, "api_key_file": "a.key"}])
    stacks.append(stack)
    (stack.folder / "a.key").write_text("sk-engine")
    await stack.start()
    assert (await stack.chat("a")).status_code == 200
    engine.key = "sk-renewed"
    (stack.folder / "a.key").write_text("sk-renewed")
    end = time.monotonic() + PATIENCE
    while (answer := await stack.chat("a")).status_code != 200:
        assert time.monotonic() < end, answer.text
    assert engine.chats()[-1] == "Bearer sk-renewed"
    assert not any("sk-client" in sent for sent in engine.chats())
