"""Requests that are served otherwise than asked: burst mode, the fallback role, variants."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.proxy.gateway import Gateway, backend, sha256
from tests.integration.servers import wait_until
from tests.integration.upstream import Answer, Upstream
from tokenweir.contract.records import ModelControl, State

Start = Callable[..., Gateway]

BURST = {"llama": ModelControl(burst=True)}
FALLBACK = {"llama": ModelControl(level=4, fallback=True)}
BODY = b'{"model":"llama", "seed":9007199254740993,"stop":[] ,"messages":[{"role":"user","content":"hi"}]%s}'


def degraded(answer: Any) -> str | None:
    value: str | None = answer.headers.get("x-tokenweir-degraded")
    return value


# Burst mode


def test_in_burst_mode_the_answer_is_kept_short_and_the_client_told(
    gateway: Gateway, upstream: Upstream
) -> None:
    gateway.publish(backend(upstream), models=BURST, burst=True)
    answer = gateway.post(body=BODY % b', "max_tokens": 4000, "logprobs":true')
    assert degraded(answer) == "burst"
    assert upstream.received[-1].body == BODY % b', "max_tokens": 256'
    wait_until(lambda: gateway.metric("tokenweir_degraded_total", how="burst") == 1, what="the metric")
    assert gateway.completions()[0]["degraded"] == "burst"
    assert gateway.completions()[0]["max_tokens"] == 256


def test_who_asks_for_no_more_is_not_degraded(gateway: Gateway, upstream: Upstream) -> None:
    gateway.publish(backend(upstream), models=BURST, burst=True, burst_max_tokens=64)
    body = BODY % b',"max_tokens":64'
    answer = gateway.post(body=body)
    assert degraded(answer) is None
    assert upstream.received[-1].body == body


def test_the_length_is_that_of_the_snapshot(gateway: Gateway, upstream: Upstream) -> None:
    gateway.publish(backend(upstream), models=BURST, burst=True, burst_max_tokens=64)
    gateway.post(body=BODY % b"")
    assert upstream.received[-1].body == BODY % b',"max_tokens":64'


def test_the_prediction_knows_of_the_limit(gateway: Gateway, upstream: Upstream) -> None:
    before = int(gateway.post(body=BODY % b"").headers["x-tokenweir-predicted-tokens"])
    gateway.publish(backend(upstream), models=BURST, burst=True, burst_max_tokens=8)
    after = int(gateway.post(body=BODY % b"").headers["x-tokenweir-predicted-tokens"])
    assert after <= 8 < before


def test_another_name_of_the_model_is_written_beside_it(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream, models={"llama": "meta/llama"})])
    gateway.publish(backend(upstream, models={"llama": "meta/llama"}), models=BURST, burst=True)
    gateway.post(body=BODY % b',"max_tokens":999')
    assert upstream.received[-1].body == (BODY % b',"max_tokens":256').replace(b'"llama"', b'"meta/llama"')


def test_a_body_in_a_file_is_shortened_too(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], limits={"body_memory": "16KiB"})
    gateway.publish(backend(upstream), models=BURST, burst=True)
    long = b'{"logprobs":true, "model":"llama","messages":[{"role":"user","content":"%s"}],"max_tokens":5000}'
    answer = gateway.post(body=long % (b"x" * 60_000))
    assert degraded(answer) == "burst"
    expected = b'{"model":"llama","messages":[{"role":"user","content":"%s"}],"max_tokens":256}'
    assert upstream.received[-1].body == expected % (b"x" * 60_000)


def test_a_key_may_be_spared(start_gateway: Start, upstream: Upstream) -> None:
    keys = [
        {"id": "spared", "sha256": sha256("one"), "burst_exempt": True},
        {"id": "usual", "sha256": sha256("two")},
    ]
    gateway = start_gateway([backend(upstream)], settings={"keys": keys, "require_key": True})
    gateway.publish(backend(upstream), models=BURST, burst=True)
    body = BODY % b',"max_tokens":999'
    assert degraded(gateway.post(body=body, headers={"Authorization": "Bearer one"})) is None
    assert degraded(gateway.post(body=body, headers={"Authorization": "Bearer two"})) == "burst"
    assert [received.body for received in upstream.received] == [body, BODY % b',"max_tokens":256']


def test_only_the_model_in_burst_mode_is_degraded(start_gateway: Start, upstream: Upstream) -> None:
    both = backend(upstream, models={"llama": "llama", "other": "other"})
    gateway = start_gateway([both])
    gateway.publish(both, models=BURST, burst=True)
    assert degraded(gateway.post(model="other", max_tokens=999)) is None
    assert degraded(gateway.post(model="llama", max_tokens=999)) == "burst"


def test_embeddings_and_other_paths_are_left_alone(gateway: Gateway, upstream: Upstream) -> None:
    gateway.publish(backend(upstream), models=BURST, burst=True)
    body = b'{"model":"llama","input":"x"}'
    assert degraded(gateway.post("/v1/embeddings", body=body)) is None
    assert degraded(gateway.post("/v1/rerank", body=body)) is None
    assert [received.body for received in upstream.received] == [body, body]


def test_the_header_can_be_turned_off(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], settings={"headers": {"degraded": False}})
    gateway.publish(backend(upstream), models=BURST, burst=True)
    assert degraded(gateway.post(max_tokens=999)) is None
    assert upstream.received[-1].json["max_tokens"] == 256


# The fallback role


@pytest.fixture
def small(start_upstream: Callable[..., Upstream]) -> Upstream:
    """An engine with a small model."""
    return start_upstream("small")


def fallback(small: Upstream, **members: Any) -> Any:
    return backend(small, role="fallback", models={"llama": "tiny-llm"}, **members)


def test_the_fallback_serves_when_the_level_says_so_with_the_model_renamed(
    start_gateway: Start, upstream: Upstream, small: Upstream
) -> None:
    gateway = start_gateway([backend(upstream), fallback(small)])
    assert degraded(gateway.post()) is None
    gateway.publish(backend(upstream), fallback(small), models=FALLBACK, level=4)
    answer = gateway.post()
    assert answer.headers["x-tokenweir-backend"] == "small"
    assert degraded(answer) == "fallback-model"
    assert small.received[-1].json["model"] == "tiny-llm"
    gateway.publish(backend(upstream), fallback(small))
    assert gateway.post().headers["x-tokenweir-backend"] == "gpu-a"
    # Each worker sends its own records, so their order tells nothing.
    assert sorted(record["degraded"] for record in gateway.completions(3)) == ["", "", "fallback-model"]


def test_without_any_other_backend_the_fallback_serves_at_once(
    start_gateway: Start, upstream: Upstream, small: Upstream
) -> None:
    gateway = start_gateway([backend(upstream), fallback(small)])
    upstream.crash()
    answers = [gateway.post() for _ in range(6)]
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert answers[-1].headers["x-tokenweir-backend"] == "small"
    assert degraded(answers[-1]) == "fallback-model"


def test_a_fallback_that_is_gone_leaves_the_request_to_those_that_are_there(
    start_gateway: Start, upstream: Upstream, small: Upstream
) -> None:
    gateway = start_gateway([backend(upstream), fallback(small, state="down")])
    gateway.publish(backend(upstream), fallback(small, state="down"), models=FALLBACK, level=4)
    answer = gateway.post()
    assert answer.headers["x-tokenweir-backend"] == "gpu-a"
    assert degraded(answer) is None


def test_both_degradations_are_told(start_gateway: Start, upstream: Upstream, small: Upstream) -> None:
    gateway = start_gateway([backend(upstream), fallback(small)])
    control = {"llama": ModelControl(level=4, fallback=True, burst=True)}
    gateway.publish(backend(upstream), fallback(small), models=control)
    assert degraded(gateway.post(max_tokens=999)) == "burst, fallback-model"


def test_neither_client_nor_engine_can_say_that_a_request_is_degraded(
    gateway: Gateway, upstream: Upstream
) -> None:
    upstream.answer = Answer(headers={"X-Tokenweir-Degraded": "forged"})
    answer = gateway.post(headers={"X-Tokenweir-Degraded": "forged"})
    assert degraded(answer) is None
    assert "x-tokenweir-degraded" not in {name.lower() for name in upstream.received[-1].headers}


# Variants


@pytest.fixture
def variants(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> Callable[..., tuple[Gateway, list[Any]]]:
    """A gateway before an fp16 and an fp8 backend of one model."""

    def start() -> tuple[Gateway, list[Any]]:
        fleet = [
            backend(start_upstream("full"), precision="fp16"),
            backend(start_upstream("half"), precision="fp8"),
        ]
        return start_gateway(fleet, workers=1), fleet

    return start


def test_the_preferred_variant_serves(variants: Callable[..., tuple[Gateway, list[Any]]]) -> None:
    gateway, fleet = variants()
    for precision, expected in (("fp8", "half"), ("fp16", "full")):
        gateway.publish(*fleet, models={"llama": ModelControl(precision=precision)})
        served = {gateway.post().headers["x-tokenweir-backend"] for _ in range(6)}
        assert served == {expected}


def test_where_the_preferred_variant_is_full_the_other_serves(
    variants: Callable[..., tuple[Gateway, list[Any]]], start_upstream: Callable[..., Upstream]
) -> None:
    gateway, fleet = variants()
    gone = [fleet[0].model_copy(update={"state": State.DOWN}), fleet[1]]
    gateway.publish(*gone, models={"llama": ModelControl(precision="fp16")})
    assert gateway.post().headers["x-tokenweir-backend"] == "half"


def test_a_request_may_pin_a_variant(variants: Callable[..., tuple[Gateway, list[Any]]]) -> None:
    gateway, fleet = variants()
    gateway.publish(*fleet, models={"llama": ModelControl(precision="fp16")})
    for asked in ("fp8", "FP8", "fp8_e4m3"):
        assert gateway.post(headers={"X-Precision": asked}).headers["x-tokenweir-backend"] == "half"
    assert gateway.post(headers={"X-Precision": "bf16"}).headers["x-tokenweir-backend"] == "full"


def test_a_variant_that_nobody_holds_is_a_400_that_names_those_there_are(
    variants: Callable[..., tuple[Gateway, list[Any]]],
) -> None:
    gateway, _ = variants()
    answer = gateway.post(headers={"X-Precision": "int4\x7f"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_precision")
    assert "It has: fp16, fp8." in answer.json()["error"]["message"]


def test_a_pinned_variant_that_is_down_is_waited_for_or_refused_but_not_replaced(
    variants: Callable[..., tuple[Gateway, list[Any]]],
) -> None:
    gateway, fleet = variants()
    gateway.publish(fleet[0], fleet[1].model_copy(update={"state": State.DOWN}))
    answer = gateway.post(headers={"X-Precision": "fp8"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_capacity")


# Engines out of memory


def test_an_engine_that_says_it_is_out_of_memory_is_out_at_once(
    start_gateway: Start, upstream: Upstream, start_upstream: Callable[..., Upstream]
) -> None:
    other = start_upstream("gpu-b")
    gateway = start_gateway([backend(upstream), backend(other)], policy="round_robin", workers=1)
    text = json.dumps({"error": {"message": "CUDA out of memory. Tried to allocate 2 GiB"}}).encode()
    upstream.answer = Answer(status=500, body=text)
    answers = [gateway.post() for _ in range(6)]
    assert [answer.status_code for answer in answers].count(500) == 1
    wait_until(
        lambda: gateway.metric("tokenweir_ejections_total", backend="gpu-a", why="memory") == 1,
        what="the ejection in the metrics",
    )
    wait_until(lambda: gateway.lease()["ejected"] == {"gpu-a": "memory"}, what="the ejection in the lease")
    errors = [record["error"] for record in gateway.completions(6)]
    assert errors.count("out_of_memory") == 1


def test_a_full_kv_cache_is_told_and_ejects_nobody(gateway: Gateway, upstream: Upstream) -> None:
    piece = b'data: {"error":{"message":"KV memory is full: every request in flight was aborted"}}\n\n'
    upstream.answer = Answer(events=[piece, b"data: [DONE]\n\n"])
    gateway.post(stream=True)
    upstream.answer = Answer()
    assert gateway.post().status_code == 200
    # Each worker sends its own records, so their order tells nothing.
    assert sorted(record["error"] for record in gateway.completions(2)) == ["", "kv_full"]


def test_who_asks_for_a_precision_whose_backends_are_away_is_told_which(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    gateway = start_gateway()
    gateway.publish(
        backend(start_upstream("full"), precision="fp16"),
        backend(start_upstream("quarter"), precision="int4", state="draining"),
    )
    error = gateway.post(headers={"X-Precision": "int4"}).json()["error"]
    assert (error["code"], error["reason"]) == ("no_capacity", "no_capacity")
    assert (
        error["message"] == "No backend of model 'llama' that holds the precision 'int4' can be reached now."
    )
    assert gateway.post().headers["x-tokenweir-backend"] == "full"
