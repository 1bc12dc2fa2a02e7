"""The GPUs' figures, from the page of an emulated server to the admin API."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
import yaml

from tests.integration.servers import ROOT, free_port
from tests.integration.sidecar.conftest import backend, until
from tokenweir.config.loading import parse


@pytest.fixture
def emulated() -> Iterator[str]:
    """The URL of an emulated A100."""
    port = free_port()
    command = [sys.executable, "-m", "emulator", "--port", str(port), "--gpu", "A100-80G"]
    with subprocess.Popen([*command, "--model", "llama-3-8b"], cwd=ROOT) as process:
        yield f"http://127.0.0.1:{port}"
        process.terminate()


async def test_the_cards_of_an_emulated_server_are_measured(write_config, start_sidecar, store, emulated):
    backends = [{"id": "a", "url": emulated, "dcgm_url": f"{emulated}/dcgm/metrics"}]
    sidecar = await start_sidecar(write_config("one", backends=backends))

    async def measured():
        return (await sidecar.http.get("/api/backends/a")).json()["measured"]

    async def read():
        return "memory_use" in await measured()

    await until(read, 20, "the card's figures")
    found = await measured()
    for name, least, most in (("memory_use", 0.5, 1), ("utilization", 0, 1), ("temperature", 20, 90)):
        assert found[name]["source"] == "dcgm"
        assert least <= found[name]["value"] <= most
    assert {"sm_active", "tensor_active", "power", "xid"} <= set(found)


@pytest.mark.parametrize("name", ["tokenweir.yaml", "deploy/compose/tokenweir.yaml"])
def test_every_server_of_the_demonstration_tells_its_cards(name):
    text = (ROOT / name).read_text()
    assert yaml.safe_load(text)["backends"]
    for server in parse(text, name, {}).backends:
        assert server.dcgm_url == f"{server.url}/dcgm/metrics"


async def test_a_lost_gpu_is_taken_out_until_an_operator_says_that_it_is_mended(
    write_config, start_sidecar, store, emulated
):
    backends = [{"id": "a", "url": emulated, "dcgm_url": f"{emulated}/dcgm/metrics"}]
    sidecar = await start_sidecar(write_config("one", backends=backends))

    async def measured():
        return "xid" in (await sidecar.http.get("/api/backends/a")).json()["measured"]

    await until(measured, 20, "the card's figures")
    await until(lambda: backend(store, "a").get("state") == "ready", what="a ready")
    async with httpx.AsyncClient(trust_env=False) as engine:
        await engine.post(f"{emulated}/admin/fault", json={"kind": "xid", "code": 79})
        await until(lambda: backend(store, "a").get("state") == "down", what="a taken out")
        alerts = (await sidecar.http.get("/api/alerts")).json()
        assert [(one["kind"], one["subject"], one["page"]) for one in alerts] == [("xid", "a", True)]
        assert "fallen off the bus" in (await sidecar.http.get("/api/control")).json()["taken_out"]["a"]
        # That the exporter tells it no more does not mend it.
        await engine.post(f"{emulated}/admin/fault", json={"kind": "none"})
    await asyncio.sleep(1)
    assert backend(store, "a")["state"] == "down"
    answer = await sidecar.http.post("/api/backends/a/return")
    assert answer.json() == {"was_left_out": True}
    await until(lambda: backend(store, "a").get("state") == "ready", what="a back")
    assert (await sidecar.http.get("/api/alerts")).json() == []
