"""What `up` waits for once every part runs."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from tokenweir.cli import up
from tokenweir.stack.settings import Settings, read


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Those of a small configuration."""
    path = tmp_path / "tokenweir.yaml"
    path.write_text("backends: [http://127.0.0.1:9]\n")
    return read(path)


def serve(monkeypatch: pytest.MonkeyPatch, get: Callable[..., httpx.Response]) -> None:
    """Have `get` answer for the gateway and for the admin API."""

    def ask(_: Settings, *paths: str) -> list[Any]:
        return [get("http://admin" + path).json() for path in paths]

    monkeypatch.setattr(up.httpx, "get", get)
    monkeypatch.setattr(up, "ask", ask)


def answers(monkeypatch: pytest.MonkeyPatch, published: int, applied: str) -> None:
    """Have the sidecar and the gateway tell these versions of the settings."""

    def get(url: str, **_: object) -> httpx.Response:
        request = httpx.Request("GET", url)
        if url.endswith("/metrics"):
            text = f'# HELP x\ntokenweir_document_version{{document="settings"}} {applied}\n'
            return httpx.Response(200, text=text, request=request)
        return httpx.Response(200, json={"version": published}, request=request)

    serve(monkeypatch, get)


@pytest.mark.parametrize(
    ("published", "applied", "said"),
    [
        (1796041894609, "1796041894609", None),
        (1796041894609, "1796041894700", None),
        (1796041894609, "1796041890000", "the gateway goes by those before"),
        (0, "1796041894609", "the sidecar has published none yet"),
    ],
)
def test_the_settings_hold_once_the_gateway_has_those_that_the_sidecar_published(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, published: int, applied: str, said: str | None
) -> None:
    answers(monkeypatch, published, applied)
    assert up.settings_lag(settings) == said


def test_a_sidecar_that_does_not_answer_is_waited_for(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(url: str, **_: object) -> httpx.Response:
        raise httpx.ConnectError(url)

    serve(monkeypatch, get)
    assert up.settings_lag(settings) == "no answer (ConnectError)"


@pytest.mark.parametrize(
    ("fleet", "said"),
    [
        ([], "no backends are configured"),
        ([("a", "ready")], "the gateway has not heard of them yet"),
        ([("a", "ready"), ("b", "down")], "b is down: Connection refused"),
        ([(f"b{k}", "down") for k in range(6)], "; and 2 more"),
    ],
)
def test_each_backend_that_cannot_be_used_is_named_with_the_reason(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, fleet: list[tuple[str, str]], said: str
) -> None:
    rows = [{"id": name, "state": state, "reason": "Connection refused"} for name, state in fleet]

    def get(url: str, **_: object) -> httpx.Response:
        return httpx.Response(200, json={"backends": rows}, request=httpx.Request("GET", url))

    serve(monkeypatch, get)
    assert up.unusable(settings).endswith(said)


def test_what_is_waited_for_is_told_again_and_again_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "AGAIN_S", 0.1)
    monkeypatch.setattr(up, "POLL_S", 0.06)
    console = Console(file=io.StringIO())
    reasons = iter(["refused", "refused", "refused", "refused", "refused", None])
    assert up.wait_until(console, "a backend", lambda: next(reasons), 60) is None
    assert "waiting for a backend: 0 of 60 s (refused)" in console.file.getvalue()  # type: ignore[attr-defined]
    assert up.wait_until(console, "a backend", lambda: "refused", 0.1) == "refused"


def test_backends_that_are_not_ready_are_named_with_the_reason_and_stopped_spares_are_not(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"id": "a", "state": "ready", "shown": "ready", "reason": "answers"},
        {"id": "b", "state": "down", "shown": "down", "reason": "b:8000: Connection refused"},
        {"id": "c", "state": "draining", "shown": "draining", "reason": "drained"},
        {"id": "d", "state": "down", "shown": "standby", "reason": "d:8000: Connection refused"},
    ]

    def get(url: str, **_: object) -> httpx.Response:
        return httpx.Response(200, json={"backends": rows}, request=httpx.Request("GET", url))

    serve(monkeypatch, get)
    assert up.waited_for(settings) == "b is down: b:8000: Connection refused"
    rows[1]["shown"] = "ready"
    assert up.waited_for(settings) is None


@pytest.mark.parametrize(
    ("leader", "said"), [("other-host", None), ("", "the sidecar has published none yet")]
)
def test_beside_a_sidecar_that_leads_this_one_need_not_publish(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, leader: str, said: str | None
) -> None:
    answers(monkeypatch, 0, "1796041894609")
    settings_and_metrics = up.httpx.get

    def get(url: str, **more: object) -> httpx.Response:
        if url.endswith("/api/fleet"):
            told = {"leading": False, "leader": leader, "backends": []}
            return httpx.Response(200, json=told, request=httpx.Request("GET", url))
        return settings_and_metrics(url, **more)  # type: ignore[arg-type]

    serve(monkeypatch, get)
    assert up.settings_lag(settings) == said


def test_of_another_configuration_up_says_what_status_and_down_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = up.same_config(tmp_path / "mine2.yaml")
    assert said == "Of this configuration: make status CONFIG=mine2.yaml, make down CONFIG=mine2.yaml"
    assert up.same_config(up.DEFAULT_CONFIG) is None


def test_the_example_names_a_model_of_a_backend_that_is_ready(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"state": "down", "models": ["a"]},
        {"state": "ready", "models": ["c", "b"]},
    ]

    def get(url: str, **_: object) -> httpx.Response:
        assert url.startswith("http://admin"), "the gateway tells its models only to who has a key"
        return httpx.Response(200, json={"backends": rows}, request=httpx.Request("GET", url))

    serve(monkeypatch, get)
    assert up.first_model(settings) == "b"
    rows.clear()
    assert up.first_model(settings) is None
