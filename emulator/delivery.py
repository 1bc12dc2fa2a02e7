"""Sends what the engine produces, when it produces it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from aiohttp import web

from emulator.engine import Exhaustion, State
from emulator.journal import Journal
from emulator.openai.errors import ApiError
from emulator.openai.shape import DONE, Shape
from emulator.pump import EngineDownError, Generation, Pump
from emulator.settings import Settings
from emulator.vllm_metrics import VllmMetrics

STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


class Delivery:
    """Runs generations and sends their answers."""

    def __init__(self, pump: Pump, journal: Journal, metrics: VllmMetrics, settings: Settings) -> None:
        self._pump, self._journal, self._metrics, self._settings = pump, journal, metrics, settings

    def _submit(self, generation: Generation, request_id: str) -> None:
        try:
            self._pump.submit(generation)
        except EngineDownError:
            raise ApiError(500, "the engine is down", code="engine_down") from None
        self._journal.executed(request_id)

    def _generated(self, generation: Generation) -> int:
        engine = self._pump.engine
        return sum(engine.generated(request) for request in generation.requests)

    def _abort(self, generation: Generation, request_id: str) -> None:
        running = sum(request.state is not State.DONE for request in generation.requests)
        if self._pump.abort(generation):
            self._journal.aborted(request_id, self._generated(generation))
            self._metrics.on_abort(running)

    async def finish(self, generation: Generation, request_id: str) -> None:
        """Run a generation to its end. Raises ApiError when the engine gives it up; when the client leaves,
        the engine drops it, or, as configured, runs on."""
        self._submit(generation, request_id)
        try:
            await generation.finished()
        except asyncio.CancelledError:
            if not self._settings.finish_abandoned:
                self._abort(generation, request_id)
            raise
        if generation.failure:
            self._pump.abort(generation)
            raise ApiError(500, generation.failure, code="engine_error")

    async def whole(self, shape: Shape, request: web.Request) -> web.Response:
        """Answer a request that does not stream."""
        generation = _generation(shape, streaming=False)
        await self.finish(generation, request_id_of(request))
        document = shape.whole(shape.answer.usage(self._generated(generation)))
        return web.Response(
            body=json.dumps(document).encode(),
            content_type="application/json",
            headers=answer_headers(request),
        )

    async def cut(self, shape: Shape, request: web.Request, after: int) -> web.Response:
        """Begin a request that does not stream, and cut its connection after some tokens."""
        generation = _generation(shape, streaming=True)
        self._submit(generation, request_id_of(request))
        try:
            while self._generated(generation) < after and not generation.done:
                await generation.progress()
        finally:
            self._pump.abort(generation)
        _close(request)
        return web.Response(status=500)

    async def stream(self, shape: Shape, request: web.Request, cut_after: int | None) -> web.StreamResponse:
        """Answer a request as server-sent events, one for each token; with `cut_after` tokens the connection
        is cut."""
        request_id = request_id_of(request)
        generation = _generation(shape, streaming=True)
        self._submit(generation, request_id)
        response = web.StreamResponse(headers={**answer_headers(request), **STREAM_HEADERS})
        try:
            # vLLM sends its headers at once; llama.cpp with the first token, so it can still answer 500.
            if self._settings.kind is not Exhaustion.PREEMPT:
                while not self._generated(generation) and not generation.failure:
                    await generation.progress()
                if generation.failure:
                    raise ApiError(500, generation.failure, code="engine_error")
            await response.prepare(request)
            await self._tokens(shape, generation, request, response, cut_after)
        except (ConnectionError, asyncio.CancelledError):
            self._abort(generation, request_id)
            raise
        finally:
            self._pump.abort(generation)
        return response

    async def _tokens(
        self,
        shape: Shape,
        generation: Generation,
        request: web.Request,
        response: web.StreamResponse,
        cut_after: int | None,
    ) -> None:
        choices = shape.answer.choices
        sent = [0] * len(choices)
        closed = [False] * len(choices)
        opening = shape.opening()
        while not all(closed):
            parts: list[bytes] = []
            for i, choice in enumerate(choices):
                count = self._pump.engine.generated(choice.request)
                if cut_after is not None:
                    count = min(count, cut_after)
                texts = map(choice.piece, range(sent[i], count))
                parts += [shape.piece(choice, text) for text in texts if text]
                sent[i] = max(sent[i], count)
                if count == choice.request.output and not closed[i]:
                    closed[i] = True
                    parts.append(shape.closing(choice))
            if parts:
                await response.write(opening + b"".join(parts))
                opening = b""
            if cut_after is not None and max(sent) >= cut_after:
                _close(request)
                return
            if generation.failure:
                error = ApiError(500, generation.failure, code="engine_error")
                await response.write(b"data: " + error.body() + b"\n\n" + DONE)
                return
            if not all(closed):
                await generation.progress()
        await response.write(shape.ending(shape.answer.usage(sum(sent))))


def _generation(shape: Shape, *, streaming: bool) -> Generation:
    choices = shape.answer.choices
    return Generation(
        [choice.request for choice in choices], [choice.finish_reason for choice in choices], streaming
    )


def _close(request: web.Request) -> None:
    """Cut the connection, as a process does that dies: what was written goes out, then nothing more."""
    if request.transport is not None:
        with contextlib.suppress(OSError):
            request.transport.close()


def request_id_of(request: web.Request) -> str:
    """The id that the client or gateway gave the request; empty without."""
    return request.headers.get("X-Request-Id", "")


def answer_headers(request: web.Request) -> dict[str, str]:
    """Headers that every answer carries."""
    request_id = request_id_of(request)
    return {"X-Request-Id": request_id} if request_id else {}


def exact_tokens(request: web.Request) -> int | None:
    """The output length that a test or bench orders with `X-Emulator-Output-Tokens`. Raises ApiError."""
    value: Any = request.headers.get("X-Emulator-Output-Tokens")
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise ApiError(400, f"X-Emulator-Output-Tokens must be a whole number above 0, got {value!r}")
    return int(value)
