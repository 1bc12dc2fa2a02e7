"""Forms (audio, images) go by the model that they name, else by their path, within what a key may use."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend, sha256
from tests.integration.upstream import Upstream

Start = Callable[..., Gateway]
Two = tuple[Gateway, Upstream, Upstream]

AUDIO = {"file": ("a.wav", b"\x00RIFF" * 20_000, "audio/wav")}


@pytest.fixture
def two(start_gateway: Start, start_upstream: Callable[..., Upstream]) -> Two:
    """`llama` on gpu-a; `whisper` on gpu-b, there called openai/whisper. One key may use llama only."""
    first, second = start_upstream("gpu-a"), start_upstream("gpu-b")
    settings = {
        "models": [{"name": "llama"}, {"name": "whisper", "aliases": ["whisper-1"]}],
        "default_model": "llama",
        "paths": {"/v1/audio/": "whisper", "/v1/audio/speech": "llama"},
        "keys": [
            {"id": "all", "sha256": sha256("sk-all")},
            {"id": "chat", "sha256": sha256("sk-chat"), "models": ["llama"]},
        ],
    }
    backends = [backend(first), backend(second, models={"whisper": "openai/whisper"})]
    return start_gateway(backends, settings, limits={"body_memory": "64KiB"}), first, second


def send(gateway: Gateway, path: str, key: str = "sk-all", **options: object) -> httpx.Response:
    """A POST of a form."""
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(gateway.url + path, headers=headers, timeout=30, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [10, 100_000], ids=["in memory", "in a file"])
def test_a_form_goes_by_the_model_that_it_names_in_the_engine_s_words(two: Two, size: int) -> None:
    gateway, _, second = two
    files = {"file": ("a.wav", b"\x00" * size, "audio/wav")}
    answer = send(gateway, "/v1/images/edits", data={"model": "whisper-1", "x": "y"}, files=files)
    assert answer.headers["x-tokenweir-backend"] == "gpu-b"
    assert b'name="model"\r\n\r\nopenai/whisper\r\n' in second.received[0].body
    assert b"\x00" * size in second.received[0].body
    assert second.received[0].headers["content-length"] == str(len(second.received[0].body))


def test_without_a_model_the_longest_path_decides_then_the_default(two: Two) -> None:
    gateway, _, _ = two
    for path, server in (
        ("/v1/audio/transcriptions", "gpu-b"),
        ("/v1/audio/speech", "gpu-a"),
        ("/v1/files", "gpu-a"),
    ):
        assert send(gateway, path, files=AUDIO).headers["x-tokenweir-backend"] == server


def test_a_key_cannot_reach_another_model_by_a_form(two: Two) -> None:
    gateway, first, second = two
    refused = [
        send(gateway, "/v1/files", "sk-chat", data={"model": "whisper"}, files=AUDIO),
        send(gateway, "/v1/audio/transcriptions", "sk-chat", files=AUDIO),
    ]
    assert [answer.status_code for answer in refused] == [404, 404]
    twice = send(
        gateway, "/v1/files", "sk-chat", files=[("model", (None, "llama")), ("model", (None, "whisper"))]
    )
    assert (twice.status_code, twice.json()["error"]["code"]) == (400, "invalid_form")
    assert not first.received
    assert not second.received
    assert send(gateway, "/v1/files", "sk-chat", data={"model": "llama"}, files=AUDIO).status_code == 200
