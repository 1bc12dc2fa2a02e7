"""The GPUs' figures, from the page of an emulated server to the admin API."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from tests.integration.servers import ROOT, free_port
from tests.integration.sidecar.conftest import until
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
    for backend in parse(text, name, {}).backends:
        assert backend.dcgm_url == f"{backend.url}/dcgm/metrics"
