"""Errors of the admin API have one shape, whoever raises them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import APIRouter, FastAPI, HTTPException

from sidecar.administration import ConflictError, UnknownBackendError
from sidecar.api import problems
from tokenweir.config import ConfigError

RAISED: dict[str, Exception] = {
    "unusable": ConfigError("admin API", ["`weight`: a number is wanted"]),
    "unknown": UnknownBackendError("b", ["a"]),
    "conflict": ConflictError("it is there already"),
    "full": OSError(28, "No space left on device"),
    "large": HTTPException(413, "the body is too large"),
    "bug": ZeroDivisionError("division by zero"),
}


def application() -> FastAPI:
    app = FastAPI()
    problems.install(app)

    @app.get("/raise/{what}")
    async def fail(what: str) -> None:
        raise RAISED[what]

    router = APIRouter()

    @router.put("/number")
    async def number(value: int) -> int:
        return value

    @router.get("/number")
    async def told() -> int:
        return 1

    app.include_router(router)
    return app


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=application(), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081") as client:
        yield client


@pytest.mark.parametrize(
    ("request_line", "status", "text", "count"),
    [
        ("GET /nothing", 404, "/docs lists the routes", 0),
        ("DELETE /number", 405, "GET, PUT", 0),
        ("PUT /number?value=x", 422, "cannot be used", 1),
        ("GET /raise/unusable", 422, "cannot be used", 1),
        ("GET /raise/unknown", 404, "the backends are: a", 0),
        ("GET /raise/conflict", 409, "it is there already", 0),
        ("GET /raise/full", 507, "No space left", 0),
        ("GET /raise/large", 413, "too large", 0),
        ("GET /raise/bug", 500, "the sidecar's own", 0),
    ],
)
async def test_every_error_has_a_message_and_its_problems(
    http: httpx.AsyncClient, request_line: str, status: int, text: str, count: int
) -> None:
    answer = await http.request(*request_line.split())
    assert answer.status_code == status
    assert answer.json().keys() == {"error"}
    error = answer.json()["error"]
    assert error.keys() == {"message", "problems"}
    assert text in error["message"]
    assert len(error["problems"]) == count


async def test_what_went_wrong_inside_is_not_told(http: httpx.AsyncClient) -> None:
    assert "division" not in (await http.get("/raise/bug")).text


async def test_a_wrong_method_is_answered_with_all_that_the_path_takes(http: httpx.AsyncClient) -> None:
    assert (await http.delete("/number")).headers["allow"] == "GET, PUT"
