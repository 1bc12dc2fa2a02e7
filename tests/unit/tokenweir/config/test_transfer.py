"""`sessions.transfer` and a backend's `transfer`: what is needed together, and the errors without it."""

from __future__ import annotations

import pytest

from tokenweir.config import ConfigError
from tokenweir.config.loading import parse
from tokenweir.contract.records import TransferAdapter

LMCACHE = """
sessions: {transfer: {adapter: lmcache, controller: http://10.0.0.5:9000/, bandwidth: 10GiB, limit: 2s}}
backends: [{url: http://10.0.0.1:8000, transfer: {instance: one}}, http://10.0.0.2:8000]
"""


def test_without_a_word_no_cache_is_moved() -> None:
    assert parse("", "t").sessions.transfer.adapter is TransferAdapter.NONE


def test_times_sizes_and_urls_are_read() -> None:
    transfer = parse(LMCACHE, "t").sessions.transfer
    assert transfer.controller == "http://10.0.0.5:9000"
    assert (transfer.bandwidth, transfer.limit) == (10 * 1024**3, 2000)


def test_vllm_needs_nothing_of_a_backend() -> None:
    assert parse("{sessions: {transfer: {adapter: vllm}}, backends: [http://10.0.0.1]}", "t").backends


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "sessions: {transfer: {adapter: lmcache}}",
            ["`sessions.transfer`", "needs `controller`", "controller: http://10.0.0.5:9000"],
        ),
        (
            "sessions: {transfer: {adapter: vllm, controller: http://10.0.0.5:9000}}",
            ["`sessions.transfer`", "goes with `adapter: lmcache`"],
        ),
        (
            "sessions: {transfer: {adapter: vllm, token_file: a.token}}",
            ["`sessions.transfer`", "goes with `adapter: agent`"],
        ),
        (
            "sessions: {transfer: {adapter: nccl}}",
            ["`sessions.transfer.adapter`", "adapter: lmcache", "none, lmcache, vllm or agent"],
        ),
        (
            "sessions: {transfer: {adapter: lmcache, controller: '10.0.0.5:9000'}}",
            ["`sessions.transfer.controller`", "for example: controller: http://10.0.0.5:9000"],
        ),
        (
            "sessions: {transfer: {bandwidth: fast}}",
            ["`sessions.transfer.bandwidth`", "bandwidth: 10GiB"],
        ),
        (
            "{sessions: {transfer: {adapter: lmcache, controller: http://c:9000}}, backends: [http://10.0.0.1]}",
            ["adapter: lmcache` needs `transfer: {instance: <its lmcache_instance_id>}` of each backend"],
        ),
        (
            "{sessions: {transfer: {adapter: agent}}, backends: [http://10.0.0.1]}",
            ["adapter: agent` needs `transfer: {kv_agent: http://10.0.0.11:9410}` of each backend"],
        ),
        (
            "backends: [{url: http://10.0.0.1, transfer: {kv_agent: gpu-a}}]",
            ["`backends[0].transfer.kv_agent`", "kv_agent: http://10.0.0.11:9410"],
        ),
        (
            "backends: [{url: http://10.0.0.1, transfer: {agent: 'http://gpu-a:9410'}}]",
            ["`backends[0].transfer.agent` is not a key", "did you mean `kv_agent`?"],
        ),
    ],
)
def test_an_error_names_the_key_and_an_example(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "tokenweir.yaml")
    for word in words:
        assert word in str(caught.value)
