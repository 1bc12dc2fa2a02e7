"""TLS on both sides: towards engines with verification, towards clients by configuration."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.upstream import Upstream

Start = Callable[..., Gateway]


@pytest.fixture
def secure(
    authority: Path, start_upstream: Callable[..., Upstream]
) -> Callable[..., tuple[Upstream, list[str]]]:
    """Starts an upstream with the certificate of `name`; returns it and the server names it was asked for."""

    def start(name: str, certificate: str = "engine-a") -> tuple[Upstream, list[str]]:
        asked: list[str] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority / f"{certificate}.pem", authority / f"{certificate}.key")
        context.sni_callback = lambda _socket, server_name, _context: asked.append(server_name)
        return start_upstream(name, context=context), asked

    return start


def trusting(authority: Path) -> dict[str, Any]:
    """Configuration of a backend whose CA is the test's."""
    return {"backends": [{"url": "https://engine-a.test", "tls": {"ca": str(authority / "ca.pem")}}]}


def test_an_engine_behind_tls_is_verified_and_asked_by_its_name(
    start_gateway: Start, secure: Any, authority: Path
) -> None:
    upstream, asked = secure("gpu-a")
    gateway = start_gateway([backend(upstream, tls=True, sni="engine-a.test")], **trusting(authority))
    for _ in range(3):
        assert gateway.post(stream=True).status_code == 200
    assert set(asked) == {"engine-a.test"}
    assert upstream.connections <= 2


def test_a_certificate_of_another_name_is_refused(start_gateway: Start, secure: Any, authority: Path) -> None:
    upstream, _ = secure("gpu-a", certificate="engine-b")
    gateway = start_gateway([backend(upstream, tls=True, sni="engine-a.test")], **trusting(authority))
    assert gateway.post().status_code in {502, 503}
    assert not upstream.received


def test_a_certificate_of_an_unknown_authority_is_refused(start_gateway: Start, secure: Any) -> None:
    upstream, _ = secure("gpu-a")
    gateway = start_gateway([backend(upstream, tls=True, sni="engine-a.test")])
    assert gateway.post().status_code in {502, 503}
    assert not upstream.received


def test_verification_can_be_switched_off_for_one_backend(start_gateway: Start, secure: Any) -> None:
    upstream, _ = secure("gpu-a")
    gateway = start_gateway([backend(upstream, tls=True, sni="engine-a.test", tls_verify=False)])
    answer = gateway.post(stream=True)
    assert answer.content == upstream.received[0].sent
    assert answer.headers["x-tokenweir-backend"] == "gpu-a"
    assert gateway.completions()[0]["outcome"] == "ok"
    assert gateway.access_log()[0]["backend"] == "gpu-a"
    gateway.settle()


def test_two_names_behind_one_address_never_share_a_connection(
    start_gateway: Start, secure: Any, authority: Path
) -> None:
    upstream, asked = secure("gpu-a")
    fleet = [
        backend(upstream, id="a", tls=True, sni="engine-a.test", credential_group="a"),
        backend(upstream, id="b", tls=True, sni="engine-c.test", credential_group="b", host_header="other"),
    ]
    gateway = start_gateway(fleet, policy="round_robin", workers=1, **trusting(authority))
    for _ in range(4):
        assert gateway.post().status_code == 200
    assert upstream.connections == 4
    assert set(asked) == {"engine-a.test", "engine-c.test"}


def test_clients_are_served_over_tls_where_it_is_configured(
    start_gateway: Start, upstream: Upstream, authority: Path
) -> None:
    tls = {"certificate": str(authority / "engine-a.pem"), "key": str(authority / "engine-a.key")}
    gateway = start_gateway([backend(upstream)], listen={"tls": tls})
    context = ssl.create_default_context(cafile=str(authority / "ca.pem"))
    answer = httpx.post(
        gateway.url + "/v1/chat/completions", json={"model": "llama", "messages": []}, verify=context
    )
    assert answer.status_code == 200
    assert upstream.received[0].headers["x-forwarded-proto"] == "https"
    plain = httpx.get(f"http://127.0.0.1:{gateway.port}/v1/models")
    assert plain.status_code == 400
    assert plain.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("http2", [True, False])
def test_plain_http_to_a_tls_port_is_told_to_use_https(
    start_gateway: Start, start_upstream: Callable[..., Upstream], authority: Path, http2: bool
) -> None:
    tls = {
        "certificate": str(authority / "engine-a.pem"),
        "key": str(authority / "engine-a.key"),
        "http2": http2,
    }
    gateway = start_gateway([backend(start_upstream("gpu-a"))], listen={"tls": tls})
    plain = gateway.url.replace("https://", "http://")
    for ask in (httpx.get(f"{plain}/v1/models"), httpx.post(f"{plain}/v1/chat/completions", json={})):
        assert ask.status_code == 400
        assert ask.json()["error"]["code"] == "tls_required"
        assert "https://" in ask.json()["error"]["message"]
    assert gateway.post().status_code == 200
    gateway.settle()
