"""The predictor in containers: an image that trains, and one with the small model."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.compose.conftest import Stack, free_port
from tests.documentation import blocks
from tests.integration.servers import wait_until

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]

WITH_TRAINING, TRAIN = blocks("docs/predictor.md", "sh", "train")[0].splitlines()
(WITH_SMALL_MODEL,) = blocks("docs/predictor.md", "sh", "small-model")[0].splitlines()
BUILD_S = 800
"""Half a gigabyte of packages is fetched and unpacked."""


@pytest.fixture
def stack(root: Path, tmp_path: Path) -> Iterator[Stack]:
    """A project of its own whose configuration asks for the small model; nothing is up yet."""
    demo = (root / "deploy/compose/tokenweir.yaml").read_text()
    config = tmp_path / "tokenweir.yaml"
    config.write_text(demo + "predictor: {small_model: true, sample: 1}\n")
    config.chmod(0o644)
    gateway, admin = free_port(), free_port()
    variables = {
        "COMPOSE_PROJECT_NAME": f"tokenweir-test-{secrets.token_hex(4)}",
        "GATEWAY_PORT": str(gateway),
        "ADMIN_PORT": str(admin),
        "TOKENWEIR_CONFIG": str(config),
    }
    made = Stack(variables["COMPOSE_PROJECT_NAME"], gateway, admin, {**os.environ, **variables}, root)
    yield made
    made.compose("down", "--volumes")


def metrics(stack: Stack) -> str:
    """The gateway's metrics page, which only its own container reaches."""
    ask = "exec 3<>/dev/tcp/127.0.0.1/9080; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    return stack.compose("exec", "-T", "gateway", "bash", "-c", ask)


def refined(stack: Stack) -> float:
    """Predictions that the small model refined, after one more first request of a session."""
    body = {
        "model": "llama-3-8b",
        "max_tokens": 200,
        "messages": [{"role": "user", "content": f"Tell me of river {secrets.token_hex(4)}."}],
    }
    answer = httpx.post(f"{stack.base_url}/chat/completions", json=body, timeout=60, trust_env=False)
    assert answer.status_code == 200
    found = re.search(r'^tokenweir_small_model_total\{result="refined"\} (\S+)', metrics(stack), re.MULTILINE)
    return float(found[1]) if found else 0


def test_the_documented_images_train_and_ask_the_small_model(stack: Stack) -> None:
    stack.documented(WITH_TRAINING, seconds=BUILD_S)
    stack.until_ready()
    said = stack.documented(TRAIN, seconds=BUILD_S)
    version = re.search(r"published (\S+);", said)
    assert version, said
    wait_until(lambda: f'tokenweir_predictor{{version="{version[1]}"}} 1' in metrics(stack), what="the model")
    found = json.loads(stack.admin("/api/predictor").text)
    assert found["missing"] == []
    # Without the small model's image its absence is told, and nothing else changes.
    assert "requirements-small-model.lock" in stack.compose("logs", "sidecar")
    assert refined(stack) == 0

    stack.documented(WITH_SMALL_MODEL, seconds=BUILD_S)
    stack.until_ready()
    wait_until(
        lambda: "\ntokenweir_sidecar_small_model 1.0\n" in stack.admin("/metrics").text, 60, "the small model"
    )
    wait_until(lambda: refined(stack) >= 1, 60, "a refined prediction")
