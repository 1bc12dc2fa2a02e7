"""KV bytes of a token where caches are moved."""

from __future__ import annotations

import pytest

from sidecar.control.kv_size import movable_kv_bytes
from tokenweir import facts
from tokenweir.config.backends import BackendConfig
from tokenweir.config.transfer import TransferConfig

VLLM = TransferConfig.model_validate({"adapter": "vllm"})
AGENT = TransferConfig.model_validate({"adapter": "agent"})
PLAIN = BackendConfig(url="http://10.0.0.1:8000")


def with_transfer(**members: object) -> BackendConfig:
    return BackendConfig.model_validate({"url": "http://10.0.0.1:8000", "transfer": members})


def test_they_are_those_of_the_model() -> None:
    assert movable_kv_bytes(VLLM, PLAIN, "llama-3-8b") == (131072, None)
    assert facts.model("llama-3-8b").kv_bytes_per_token == 131072


def test_what_is_configured_wins() -> None:
    assert movable_kv_bytes(VLLM, with_transfer(kv_bytes=65536), "llama-3-8b") == (65536, None)


@pytest.mark.parametrize(("transfer", "config"), [(TransferConfig(), PLAIN), (AGENT, PLAIN)])
def test_who_takes_no_part_has_none(transfer: TransferConfig, config: BackendConfig) -> None:
    assert movable_kv_bytes(transfer, config, "llama-3-8b") == (None, None)
    assert movable_kv_bytes(AGENT, with_transfer(kv_agent="http://a:1"), "llama-3-8b")[0] == 131072


def test_of_a_model_that_nobody_knows_it_is_said_what_to_set() -> None:
    size, reason = movable_kv_bytes(VLLM, PLAIN, "")
    assert size is None
    assert reason
    assert "kv_bytes" in reason
