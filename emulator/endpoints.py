"""The `/v1/` endpoints."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any
from uuid import uuid4

from aiohttp import web

from emulator import tokens
from emulator.delivery import answer_headers, exact_tokens, request_id_of
from emulator.openai import chat, completions, embeddings, prompt, responses
from emulator.openai.answer import Answer, Choice, choices
from emulator.openai.errors import ApiError
from emulator.openai.parameters import Sampling, document, sampling
from emulator.openai.prompt import Prompt
from emulator.openai.shape import Shape
from emulator.pump import Generation
from emulator.server import Server


class Endpoints:
    """Handlers of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the routes."""
        router.add_post(chat.PATH, self.chat)
        router.add_post(completions.PATH, self.completions)
        router.add_post(embeddings.PATH, self.embeddings)
        router.add_post(responses.PATH, self.responses)
        router.add_get(responses.PATH + "/{id}", self.response)
        router.add_delete(responses.PATH + "/{id}", self.delete_response)
        router.add_post("/tokenize", self.tokenize)
        router.add_get("/v1/models", self.models)
        router.add_get("/v1/models/{id:.+}", self.model)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/chat/completions`."""
        body = await self._body(request)
        found = sampling(body, chat.LIMITS, None)
        prompts = [prompt.chat(body.get("messages"), body.get("tools"))]
        made = _answer(
            "chatcmpl-", body, found, prompts, self._choices(request, found, prompts, chat.LIMITS[0])
        )
        return await self._handed_over("chat", body, request, chat.ChatShape(made))

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/completions`."""
        body = await self._body(request)
        found = sampling(body, completions.LIMITS, completions.DEFAULT_MAX_TOKENS)
        prompts = prompt.plain(body.get("prompt"), "prompt")
        made = _answer(
            "cmpl-", body, found, prompts, self._choices(request, found, prompts, completions.LIMITS[0])
        )
        return await self._handed_over("completions", body, request, completions.CompletionShape(made))

    async def responses(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/responses`."""
        body = await self._body(request)
        found = replace(sampling(body, responses.LIMITS, None), n=1)
        read = responses.prompt(body, self._server.responses)
        made = _answer(
            "resp_", body, found, [read], self._choices(request, found, [read], responses.LIMITS[0])
        )
        shape = responses.ResponseShape(made, body)
        sent = await self._deliver(request, shape)
        if body.get("store") is not False and sent.status == 200:
            text = made.choices[0].text
            whole = shape.whole(made.usage(made.choices[0].request.output))
            self._server.responses.keep(made.id, whole, f"{read.text}{text}\n")
        return sent

    async def response(self, request: web.Request) -> web.Response:
        """`GET /v1/responses/ID`."""
        return web.json_response(self._server.responses.find(request.match_info["id"]).document)

    async def delete_response(self, request: web.Request) -> web.Response:
        """`DELETE /v1/responses/ID`."""
        found = request.match_info["id"]
        self._server.responses.delete(found)
        return web.json_response({"id": found, "object": "response", "deleted": True})

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/embeddings`."""
        body = await self._body(request)
        settings = self._server.settings
        prompts = prompt.plain(body.get("input"), "input")
        size, form = embeddings.dimensions(body), embeddings.encoding(body)
        asked = embeddings.requests(settings, prompts)
        generation = Generation(asked, ["stop"] * len(asked), streaming=False)
        await self._server.delivery.finish(generation, request_id_of(request))
        found = embeddings.document(str(body["model"]), prompts, size, form, settings.seed)
        return web.json_response(found, headers=answer_headers(request))

    async def tokenize(self, request: web.Request) -> web.Response:
        """`POST /tokenize`, as vLLM: the tokens of a chat (`messages`) or a text (`prompt`)."""
        body = await self._body(request)
        if "messages" in body:
            read = prompt.chat(body["messages"], body.get("tools"))
        else:
            (read,) = prompt.plain(body.get("prompt"), "prompt")
        found = tokens.numbers(read.text)
        context = self._server.settings.context
        return web.json_response({"count": len(found), "max_model_len": context, "tokens": found})

    async def models(self, request: web.Request) -> web.Response:
        """`GET /v1/models`."""
        data = [self._model(name) for name in self._server.settings.names]
        return web.json_response({"object": "list", "data": data})

    async def model(self, request: web.Request) -> web.Response:
        """`GET /v1/models/ID`."""
        name = request.match_info["id"]
        self._check_model(name)
        return web.json_response(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._server.started,
            "owned_by": "emulator",
            "root": self._server.settings.model,
            "max_model_len": self._server.settings.context,
        }

    def _check_model(self, name: Any) -> None:
        if not isinstance(name, str):
            raise ApiError(400, "you must provide a model parameter", param="model", code="invalid_type")
        if name not in self._server.settings.names:
            known = ", ".join(self._server.settings.names)
            raise ApiError(
                404,
                f"The model `{name}` does not exist. This server has: {known}.",
                param="model",
                code="model_not_found",
            )

    async def _body(self, request: web.Request) -> dict[str, Any]:
        """The request's checked JSON object; a request that a fault rejects gets no further."""
        if rejection := self._server.faults.rejection():
            raise ApiError(rejection[0], rejection[1], code="emulated_fault")
        body = document(await request.read())
        self._check_model(body.get("model"))
        return body

    def _choices(
        self, request: web.Request, found: Sampling, prompts: list[Prompt], limit: str
    ) -> list[Choice]:
        """`found.n` choices for each prompt; `limit` is the parameter to name when the context is too
        short."""
        exact, settings = exact_tokens(request), self._server.settings
        numbered = enumerate(
            choice for read in prompts for choice in choices(settings, read, found, exact, limit)
        )
        return [replace(choice, index=i) for i, choice in numbered]

    async def _handed_over(
        self, kind: str, body: dict[str, Any], request: web.Request, shape: Shape
    ) -> web.StreamResponse:
        """Deliver an answer, with the cache taken over or offered as the request says."""
        handover = self._server.handover
        if handover is None:
            return await self._deliver(request, shape)
        await handover.take(kind, body)
        return handover.offer(body, await self._deliver(request, shape))

    async def _deliver(self, request: web.Request, shape: Shape) -> web.StreamResponse:
        delivery, cut = self._server.delivery, self._server.faults.cut_after()
        if shape.answer.sampling.stream:
            return await delivery.stream(shape, request, cut)
        if cut is not None:
            return await delivery.cut(shape, request, cut)
        return await delivery.whole(shape, request)


def _answer(
    prefix: str, body: dict[str, Any], found: Sampling, prompts: list[Prompt], made: list[Choice]
) -> Answer:
    total = sum(read.tokens for read in prompts)
    return Answer(prefix + uuid4().hex, body["model"], int(time.time()), found, total, made)


def not_found(request: web.Request) -> web.Response:
    """The answer to a path that there is not."""
    message = f"Unknown request URL: {request.method} {request.path}."
    return ApiError(404, message, code="unknown_url").response()
