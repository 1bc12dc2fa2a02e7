"""Errors of the admin API: `{"error": {"message", "problems"}}`, one problem a wrong key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match

from sidecar.administration import ConflictError, UnknownBackendError
from tokenweir.config import ConfigError
from tokenweir.config.errors import describe, what_is_wrong
from tokenweir.config.places import Section

UNREADABLE = "the body cannot be read: UTF-8 JSON is wanted, nested no deeper than a configuration is"
NO_OBJECT = "a JSON object is wanted as the body, sent with the header `Content-Type: application/json`"


METHODS: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")
"""Those that routes here have."""


class Problem(BaseModel):
    """What went wrong."""

    message: str
    problems: list[str] = Field(default=[], description="one line for each wrong key, with an example")


class ProblemAnswer(BaseModel):
    """The body of every error."""

    error: Problem


def answer(
    status: int,
    message: str,
    problems: list[str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """An error's response."""
    body = ProblemAnswer(error=Problem(message=message, problems=problems or []))
    return JSONResponse(body.model_dump(), status, headers)


def _methods(request: Request) -> str:
    """What may be asked of the path, as in `Allow`: by all routes that have it, not by the first alone."""
    asked = ((method, {**request.scope, "method": method}) for method in METHODS)
    routes = request.app.routes
    return ", ".join(
        method for method, scope in asked if any(route.matches(scope)[0] is Match.FULL for route in routes)
    )


def _body_of(request: Request) -> Section:
    """What the route reads its body as."""
    section: Section = request.scope["route"].body_field.field_info.annotation
    return section


def install(app: FastAPI) -> None:
    """Have every error answered in this shape."""

    @app.exception_handler(ConfigError)
    async def unusable(_: Request, error: ConfigError) -> JSONResponse:
        return answer(422, "the values cannot be used", error.problems)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        problems = []
        for item in error.errors():
            if item["type"] == "json_invalid":
                problems.append(f"the body is no JSON: {item['ctx']['error']} at character {item['loc'][-1]}")
            elif item["loc"] == ("body",):
                problems.append(NO_OBJECT)
            elif item["loc"][0] == "body":
                problems += describe([{**item, "loc": tuple(item["loc"][1:])}], _body_of(request))
            else:
                problems.append(f"`{item['loc'][-1]}`: {what_is_wrong(item)} (got {item['input']!r})")
        return answer(422, "the request cannot be used", problems)

    @app.exception_handler(UnknownBackendError)
    async def unknown(_: Request, error: UnknownBackendError) -> JSONResponse:
        return answer(404, str(error))

    @app.exception_handler(ConflictError)
    async def conflict(_: Request, error: ConflictError) -> JSONResponse:
        return answer(409, str(error))

    @app.exception_handler(OSError)
    async def unwritable(_: Request, error: OSError) -> JSONResponse:
        return answer(507, f"the change cannot be kept, so it was not made: {error}")

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 405:
            allowed = _methods(request)
            text = f"{request.method} is not answered here, {allowed} is; /docs lists the routes"
            return answer(405, text, headers={"Allow": allowed})
        texts = {
            400: UNREADABLE,
            404: "nothing is here; /docs lists the routes",
        }  # 400: what is no JSON at all
        text = texts.get(error.status_code, str(error.detail))
        return answer(error.status_code, text, headers=error.headers)

    @app.exception_handler(Exception)
    async def bug(_: Request, __: Exception) -> JSONResponse:
        # Starlette raises it again once this is sent, so that it is logged.
        return answer(500, "an error of the sidecar's own; its log says more")
