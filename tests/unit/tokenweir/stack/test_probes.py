"""How a part is asked whether it is ready."""

from __future__ import annotations

import httpx
import pytest

from tokenweir.stack import probes


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("::", "[::1]"),
        ("[::]", "[::1]"),
        ("10.0.0.5", "10.0.0.5"),
        ("fd00::5", "[fd00::5]"),
        ("localhost", "localhost"),
    ],
)
def test_a_server_that_listens_everywhere_is_reached_by_loopback(address: str, host: str) -> None:
    assert probes.url_host(address) == host


@pytest.mark.parametrize(
    ("status", "kind", "text", "said"),
    [
        (200, "text/plain", "ok", None),
        (503, "application/json", '{"reason":\n "starting"}', 'answers 503 {"reason": "starting"}'),
        (404, "text/html", "<html>", "answers 404 with a web page: is that another program?"),
    ],
)
def test_an_answer_other_than_200_is_told(
    monkeypatch: pytest.MonkeyPatch, status: int, kind: str, text: str, said: str | None
) -> None:
    def get(url: str, **_: object) -> httpx.Response:
        return httpx.Response(
            status, headers={"Content-Type": kind}, text=text, request=httpx.Request("GET", url)
        )

    monkeypatch.setattr(probes.httpx, "get", get)
    assert probes.http_ready("http://127.0.0.1:1/healthz") == said


def test_nobody_there_is_told_by_the_kind_of_error() -> None:
    assert probes.http_ready("http://127.0.0.1:1/healthz") == "no answer yet (ConnectError)"
