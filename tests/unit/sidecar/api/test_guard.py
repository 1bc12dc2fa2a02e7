"""Who may use the admin API."""

from __future__ import annotations

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from sidecar.api.guard import Guard

TOKEN = "correct horse battery"


def client(token=None, address="127.0.0.1") -> httpx.AsyncClient:
    async def answer(_):
        return PlainTextResponse("in")

    routes = [Route(path, answer, methods=["GET", "POST"]) for path in ("/api/x", "/healthz", "/readyz")]
    transport = httpx.ASGITransport(app=Guard(Starlette(routes=routes), token), client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081")


async def status(method="GET", path="/api/x", token=None, address="127.0.0.1", **headers):
    async with client(token, address) as http:
        return (
            await http.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        ).status_code


@pytest.mark.parametrize("host", ["127.0.0.1:8081", "localhost:8081", "LOCALHOST", "[::1]:8081", "127.0.0.2"])
async def test_without_a_token_this_host_may_enter_by_its_own_names(host):
    assert await status(host=host) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:8081", "", "localhost.evil", "[::1].evil.example"],
)
async def test_without_a_token_a_rebound_name_is_refused(host):
    assert await status(host=host) == 403


async def test_without_a_token_another_host_is_refused():
    assert await status(address="10.0.0.9") == 403


async def test_a_page_of_another_origin_is_refused():
    assert await status("POST", origin="http://evil.example") == 403
    assert await status("POST", origin="http://localhost:9999") == 403
    assert await status("POST", origin="null") == 403
    assert await status("POST", origin="http://127.0.0.1:8081") == 200
    assert await status("GET", sec_fetch_site="cross-site") == 403


@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"],
)
async def test_with_a_token_anything_else_is_refused(value):
    assert await status(token=TOKEN, authorization=value) == 401
    assert await status(token=TOKEN) == 401


async def test_with_a_token_its_bearer_may_enter_from_anywhere():
    assert (
        await status(token=TOKEN, address="10.0.0.9", host="admin.example", authorization=f"Bearer {TOKEN}")
        == 200
    )
    assert await status(token=TOKEN, authorization=f"bearer {TOKEN}") == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_are_open(path):
    assert await status(path=path, token=TOKEN) == 200
    assert await status(path=path, address="10.0.0.9", host="pod-ip") == 200


async def test_a_refusal_says_what_to_do():
    async with client(TOKEN) as http:
        answer = await http.get("/api/x")
    assert "Authorization: Bearer" in answer.json()["error"]["message"]
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "refused",
    [
        {"token": TOKEN},
        {"address": "10.0.0.9"},
        {"headers": {"Host": "evil.example"}},
        {"headers": {"Origin": "http://evil.example"}},
        {"headers": {"Sec-Fetch-Site": "cross-site"}},
    ],
)
async def test_a_refusal_has_the_shape_of_every_error(refused):
    headers = refused.pop("headers", {})
    async with client(**refused) as http:
        answer = await http.get("/api/x", headers=headers)
    assert answer.status_code in {401, 403}
    assert answer.json().keys() == {"error"}
    assert answer.json()["error"].keys() == {"message", "problems"}
    assert answer.json()["error"]["problems"] == []
