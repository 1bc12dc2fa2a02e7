"""The agent over real HTTP, on a driver as NVML's documentation describes it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from sidecar.agent.cli import options
from sidecar.agent.page import render
from sidecar.agent.server import Agent
from sidecar.telemetry import dcgm
from sidecar.telemetry.exposition import Page
from sidecar.telemetry.nvml import Nvml
from tests.documentation import blocks
from tests.unit.sidecar.telemetry.nvml_library import driver

__all__ = ["driver"]

TOKEN = "a-token-of-the-agent"


@pytest.fixture
async def agent(driver, tmp_path) -> AsyncIterator[str]:
    """A running agent with a folder of weights; its URL."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"x" * 100_000)
    async for url in running(Agent(Nvml(), tmp_path, TOKEN)):
        yield url


async def running(made: Agent) -> AsyncIterator[str]:
    runner = web.AppRunner(made.app(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def ask(method, url, token=None, **members):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, url, **members) as answer,
    ):
        return (
            answer.status,
            await answer.text() if answer.content_type == "text/plain" else await answer.json(),
        )


async def test_its_page_gives_the_same_cards_as_the_driver(agent, driver):
    driver.cards[0].reasons = 0x44
    status, text = await ask("GET", f"{agent}/metrics")
    assert status == 200
    page = Page(text.encode())
    assert dcgm.source(page) == "nvml"
    seen = dcgm.read(page, dcgm.Labels())
    library = Nvml()
    for card, direct in zip(seen, library.read(), strict=True):
        # What the driver counts anew with every look is its own; the exporter's words have no empty count.
        assert replace(card, labels={}) == replace(direct, labels={})
        assert card.labels["UUID"] == direct.uuid
    library.close()


async def test_xid_errors_reach_the_page(agent, driver):
    await ask("GET", f"{agent}/metrics")
    driver.events.extend([(1, 31), (1, 31)])
    await asyncio.sleep(0.15)
    _, text = await ask("GET", f"{agent}/metrics")
    cards = dcgm.read(Page(text.encode()), dcgm.Labels())
    assert (cards[1].xid, cards[1].xid_counts, cards[0].xid_counts) == (31, {31: 2}, None)


async def test_many_askers_cost_one_look(agent, driver):
    driver.cards[0].temperature = 50
    await asyncio.gather(*(ask("GET", f"{agent}/metrics") for _ in range(5)))
    driver.cards[0].temperature = 99
    _, text = await ask("GET", f"{agent}/metrics")
    assert dcgm.read(Page(text.encode()), dcgm.Labels())[0].temperature == 50


async def test_its_own_cost_is_told(agent):
    _, text = await ask("GET", f"{agent}/metrics")
    page = Page(text.encode())
    assert 0 < page.total("tokenweir_agent_read_seconds") < 5
    assert page.total("tokenweir_agent_cpu_seconds_total") > 0


async def test_a_host_without_a_driver_answers_503_with_the_reason(driver):
    driver.cards.clear()
    async for url in running(Agent(Nvml())):
        status, body = await ask("GET", f"{url}/metrics")
        assert (status, body) == (503, {"error": "NVML: the driver shows no GPU"})


async def test_weights_are_read_ahead_for_who_has_the_token(agent):
    status, body = await ask("POST", f"{agent}/prefetch", TOKEN, json={"path": "model"})
    assert status == 202
    async with asyncio.timeout(5):
        while not body["finished"]:
            await asyncio.sleep(0.01)
            _, body = await ask("GET", f"{agent}/prefetch?path=model", TOKEN)
    assert (body["files"], body["done_bytes"], body["total_bytes"], body["problem"]) == (
        1,
        100_000,
        100_000,
        "",
    )


@pytest.mark.parametrize("token", [None, "another-token-than-it"])
async def test_without_the_token_nothing_is_read(agent, token):
    status, body = await ask("POST", f"{agent}/prefetch", token, json={"path": "model"})
    assert (status, body) == (401, {"error": "the agent's token is wanted"})


@pytest.mark.parametrize("path", ["/etc", "../..", "link"])
async def test_nothing_outside_its_folder_is_read(agent, tmp_path, path):
    (tmp_path / "link").symlink_to("/etc")
    status, body = await ask("POST", f"{agent}/prefetch", TOKEN, json={"path": path})
    assert status == 403
    assert "not below" in body["error"]


@pytest.mark.parametrize(
    "body", [{}, {"path": "model", "readers": 0}, ["model"], {"path": "model", "readers": "x"}]
)
async def test_a_wrong_order_is_refused(agent, body):
    status, _ = await ask("POST", f"{agent}/prefetch", TOKEN, json=body)
    assert status in {400, 403}


async def test_without_a_folder_there_are_no_prefetches(driver):
    async for url in running(Agent(Nvml())):
        assert (await ask("POST", f"{url}/prefetch", TOKEN, json={"path": "x"}))[0] == 404


def test_labels_of_strange_names_are_escaped(driver):
    library = Nvml()
    (card, _) = library.read()
    library.close()
    text = render([replace(card, name='a "b"\\c')], "host", 1, 1)
    (read,) = dcgm.read(Page(text.encode()), dcgm.Labels())
    assert read.name == 'a "b"\\c'


def test_the_documented_command_line_is_understood():
    *_, line = blocks("docs/telemetry.md", "sh", "agent")[0].splitlines()
    words = shlex.split(line)
    assert words[:3] == [".venv/bin/python", "-m", "sidecar.agent"]
    assert (options(words[3:]).address, options(words[3:]).port) == ("0.0.0.0", 9401)


def test_the_command_line_names_what_is_wrong(tmp_path, capsys):
    for arguments, words in (
        (["--weights", str(tmp_path)], "belong together"),
        (["--weights", "/no/such", "--token-file", "x"], "no such folder"),
        (["--weights", str(tmp_path), "--token-file", str(tmp_path / "gone")], "No such file"),
    ):
        with pytest.raises(SystemExit):
            options(arguments)
        assert words in capsys.readouterr().err
    (tmp_path / "short").write_text("short")
    with pytest.raises(SystemExit):
        options(["--weights", str(tmp_path), "--token-file", str(tmp_path / "short")])
    assert "16 characters" in capsys.readouterr().err
    assert options([]).address == "127.0.0.1"
