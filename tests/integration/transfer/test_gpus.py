"""Tensors that move between processes with real GPUs: by NCCL where each has one of its own, else by Gloo."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.integration.proxy.gateway import HTTP
from tests.integration.servers import wait_until
from tests.integration.transfer.conftest import MODEL, STARTS_S, WORDS, Engine

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


def test_tensors_of_gpus_arrive_as_they_were(tmp_path: Path) -> None:
    cards = torch.cuda.device_count()
    assert cards, "torch finds no GPU here"
    giver, taker = (Engine(f"gpu-{k}", tmp_path, True, card=k % cards) for k in range(2))
    try:
        for engine in (giver, taker):
            wait_until(engine.ready, STARTS_S, engine.name)
        body = {"model": MODEL, "messages": [{"role": "user", "content": WORDS * 100}], "max_tokens": 1}
        HTTP.post(f"{giver.url}/v1/chat/completions", json=body).raise_for_status()
        asked = {"source": giver.agent, "kind": "chat", "request": body, "timeout_ms": 60_000}
        HTTP.post(f"{taker.agent}/kv/fetch", json=asked).raise_for_status()
        mine = giver.digests(body)
        assert mine
        assert taker.digests(body) == mine
        assert taker.counts()["nccl"] == (1 if cards > 1 else 0)
    finally:
        for engine in (giver, taker):
            engine.stop()
