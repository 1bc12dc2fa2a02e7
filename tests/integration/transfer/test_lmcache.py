"""LMCache's controller between real parts: what it is asked, and a prefill where it fails or is silent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

from emulator import tokens
from emulator.openai import prompt
from tests.integration.transfer.conftest import Engine, Stack, cached

StartEngines = Callable[..., list[Engine]]
StartStack = Callable[..., Stack]
INSTANCES = {"gpu-a": {"instance": "lmcache_instance_1"}, "gpu-b": {"instance": "lmcache_instance_2"}}
SILENT = 0


class Controller:
    """LMCache's controller as its documentation describes it, in a thread. It knows the caches that it is
    told of, and moves nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.moves_answer = 200
        """Status of the answers to `/move`; SILENT: none comes."""
        self.layout: dict[str, list[Any]] = {}
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()
        assert self._ready.wait(30)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._ready.set()
        self._loop.run_forever()

    async def _listen(self) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/lookup", self._lookup)
        app.router.add_post("/move", self._move)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _lookup(self, request: web.Request) -> web.Response:
        self.asked.append(("/lookup", await request.json()))
        return web.json_response({"event_id": "Lookup1", "layout_info": self.layout})

    async def _move(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(("/move", body))
        if self.moves_answer == SILENT:
            await asyncio.Event().wait()
        if self.moves_answer != 200:
            return web.json_response({"detail": "worker timed out"}, status=self.moves_answer)
        return web.json_response({"event_id": "Move1", "num_tokens": len(body["tokens"])})

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)


@pytest.fixture
def controller() -> Iterator[Controller]:
    found = Controller()
    yield found
    found.stop()


@pytest.fixture
def stack(start_engines: StartEngines, start_stack: StartStack, controller: Controller) -> Stack:
    transfer = {"adapter": "lmcache", "controller": f"http://127.0.0.1:{controller.port}", "limit": "60s"}
    return start_stack(start_engines(kv=False), transfer, INSTANCES)


def test_it_is_asked_to_copy_the_prompt_s_tokens_between_the_instances(
    stack: Stack, controller: Controller
) -> None:
    home, other, body = stack.begin("Of controllers")
    old, new = INSTANCES[home.name]["instance"], INSTANCES[other.name]["instance"]
    controller.layout = {old: ["LocalCPUBackend", 7040]}
    stack.drain(home)
    assert stack.ask(body)[0] == other.name
    stack.outcomes(done=1)
    numbers = tokens.numbers(prompt.chat(body["messages"], None).text)
    assert controller.asked == [
        ("/lookup", {"tokens": numbers}),
        (
            "/move",
            {
                "old_position": [old, "LocalCPUBackend"],
                "new_position": [new, "LocalCPUBackend"],
                "tokens": numbers[:7040],
                "copy": True,
                "should_copy": True,
            },
        ),
    ]
    stack.gateway.expect(7040, "tokenweir_kv_transfer_tokens_total")


@pytest.mark.parametrize("status", [500, 404])
def test_a_controller_that_fails_costs_a_prefill(stack: Stack, controller: Controller, status: int) -> None:
    home, other, body = stack.begin("Of failures")
    controller.layout = {INSTANCES[home.name]["instance"]: ["LocalCPUBackend", 7040]}
    controller.moves_answer = status
    stack.drain(home)
    name, answer = stack.ask(body)
    assert (name, cached(answer)) == (other.name, 0)
    stack.outcomes(failed=1)


def test_a_silent_controller_is_not_waited_for_longer_than_the_prefill(
    stack: Stack, controller: Controller
) -> None:
    home, other, body = stack.begin("Of silence")
    controller.layout = {INSTANCES[home.name]["instance"]: ["LocalCPUBackend", 7040]}
    controller.moves_answer = SILENT
    stack.drain(home)
    name, answer = stack.ask(body)
    assert (name, cached(answer)) == (other.name, 0)
    stack.outcomes(late=1)
    # A prefill of 7,000 tokens takes a T4 two seconds.
    assert 1 < stack.waited("late") < 6


def test_where_it_knows_of_nothing_nothing_is_moved(stack: Stack, controller: Controller) -> None:
    home, other, body = stack.begin("Of nothing")
    stack.drain(home)
    assert stack.ask(body)[0] == other.name
    stack.outcomes(failed=1)
    assert [path for path, _ in controller.asked] == ["/lookup"]
