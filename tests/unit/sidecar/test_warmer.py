"""Warm-up prompts, as an engine gets them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sidecar.telemetry.http import Origin
from sidecar.warmer import OUTPUT, Warmer, WarmUpError

Answers = dict[str, int]


class Engine:
    """Answers each path with a status, and keeps what it was asked."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any], str | None]] = []

    async def answer(self, request: web.Request) -> web.Response:
        """One answer."""
        self.asked.append(
            (request.path, json.loads(await request.text()), request.headers.get("Authorization"))
        )
        return web.Response(status=self.answers.get(request.path, 404), text="data: x\n\n")


Start = Callable[[Answers], Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts an engine and returns it with its origin."""
    servers: list[TestServer] = []

    async def run(answers: Answers) -> tuple[Engine, Origin]:
        engine, app = Engine(answers), web.Application()
        app.router.add_post("/{path:.*}", engine.answer)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        return engine, Origin(f"http://127.0.0.1:{server.port}", "gpu-a:8000", api_key="sk-1")

    yield run
    for server in servers:
        await server.close()


async def test_a_small_streamed_chat_with_the_backends_key_is_timed(start: Start) -> None:
    engine, origin = await start({"/v1/chat/completions": 200})
    assert await Warmer().prompt(origin, "m") >= 0
    [(path, body, authorization)] = engine.asked
    assert (path, body["model"], body["stream"]) == ("/v1/chat/completions", "m", True)
    assert (body["max_tokens"], authorization) == (OUTPUT, "Bearer sk-1")


async def test_an_engine_without_chats_is_asked_as_it_can_be_and_remembered(start: Start) -> None:
    engine, origin = await start({"/v1/chat/completions": 400, "/v1/completions": 404, "/v1/embeddings": 200})
    warmer = Warmer()
    await warmer.prompt(origin, "m")
    await warmer.prompt(origin, "m")
    assert [path for path, _, _ in engine.asked] == [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/embeddings",
    ]


async def test_an_engine_that_fails_is_told_with_what_it_answers_and_not_asked_otherwise(
    start: Start,
) -> None:
    engine, origin = await start({"/v1/chat/completions": 500, "/v1/completions": 200})
    with pytest.raises(WarmUpError, match="/v1/chat/completions answers 500") as found:
        await Warmer().prompt(origin, "m")
    assert len(engine.asked) == 1
    assert not found.value.refused, "it may be about to come"


async def test_one_that_is_not_there_is_told_by_the_path() -> None:
    with pytest.raises(WarmUpError, match="/v1/chat/completions: ") as found:
        await Warmer().prompt(Origin("http://127.0.0.1:1", "gpu-a"), "m")
    assert not found.value.refused


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_an_engine_that_serves_no_such_prompt_is_told_from_one_that_fails(
    start: Start, status: int
) -> None:
    _, origin = await start(
        dict.fromkeys(("/v1/chat/completions", "/v1/completions", "/v1/embeddings"), status)
    )
    with pytest.raises(WarmUpError) as found:
        await Warmer().prompt(origin, "m")
    assert found.value.refused


async def test_another_engine_at_the_same_place_is_asked_anew(start: Start) -> None:
    engine, origin = await start({"/v1/embeddings": 200})
    warmer = Warmer()
    await warmer.prompt(origin, "m")
    engine.answers = {"/v1/chat/completions": 200}
    with pytest.raises(WarmUpError):
        await warmer.prompt(origin, "m")
    await warmer.prompt(origin, "m")
