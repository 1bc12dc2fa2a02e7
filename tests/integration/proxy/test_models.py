"""Requests go by their model: aliases, the engine's names, what does not exist, what a key may see."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.proxy.gateway import Gateway, backend, sha256
from tests.integration.upstream import Upstream
from tokenweir.contract.records import State

Start = Callable[..., Gateway]


@pytest.fixture
def two(start_gateway: Start, start_upstream: Callable[..., Upstream]) -> tuple[Gateway, Upstream, Upstream]:
    """`llama` on gpu-a, which the engine calls meta/llama; `qwen` on gpu-b. `small` is an alias of `qwen`."""
    first, second = start_upstream("gpu-a"), start_upstream("gpu-b")
    backends = [backend(first, models={"llama": "meta/llama"}), backend(second, models={"qwen": "qwen"})]
    settings = {"models": [{"name": "llama"}, {"name": "qwen", "aliases": ["small", "sm\u00f6l"]}]}
    return start_gateway(backends, settings), first, second


def test_a_model_is_served_by_a_backend_that_has_it(two: tuple[Gateway, Upstream, Upstream]) -> None:
    gateway, _, _ = two
    assert gateway.post(model="qwen").json()["server"] == "gpu-b"
    assert gateway.post(model="llama").json()["server"] == "gpu-a"


def test_the_engine_is_asked_by_its_own_name_and_nothing_else_changes(
    two: tuple[Gateway, Upstream, Upstream],
) -> None:
    gateway, first, _ = two
    body = b'{"messages":[], "model" : "llama","logit_bias":{"1":0.10}}'
    assert gateway.post(body=body).status_code == 200
    assert first.received[0].body == b'{"messages":[], "model" : "meta/llama","logit_bias":{"1":0.10}}'
    assert first.received[0].headers["content-length"] == str(len(first.received[0].body))


def test_an_alias_is_the_model_that_it_stands_for(two: tuple[Gateway, Upstream, Upstream]) -> None:
    gateway, _, second = two
    assert gateway.post(model="small").status_code == 200
    assert gateway.post(model="sm\u00f6l").status_code == 200
    assert [received.json["model"] for received in second.received] == ["qwen", "qwen"]
    assert gateway.completions(2)[0]["model"] == "qwen"


def test_a_model_given_twice_reaches_the_engine_as_the_one_that_was_checked(
    two: tuple[Gateway, Upstream, Upstream],
) -> None:
    gateway, _, second = two
    gateway.post(body=b'{"model":"llama","messages":[],"mod\\u0065l":"qwen"}')
    assert second.received[0].body == b'{"model":"qwen","messages":[],"mod\\u0065l":"qwen"}'


def test_a_body_whose_members_contradict_each_other_is_not_made_many_times_as_long(
    two: tuple[Gateway, Upstream, Upstream],
) -> None:
    gateway, *upstreams = two
    again, text = b'"messages":[],' * 500, b"x" * 1_000_000
    body = b'{"model":"llama",%b"messages":[{"role":"user","content":"%b"}]}' % (again, text)
    answer = gateway.post(body=body)
    assert answer.status_code == 400
    assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == ("invalid_member", "messages")
    assert not any(upstream.received for upstream in upstreams)


def test_an_unknown_model_is_answered_with_those_that_exist(two: tuple[Gateway, Upstream, Upstream]) -> None:
    gateway, _, _ = two
    answer = gateway.post(model="gpt-9")
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert (error["type"], error["code"], error["param"]) == (
        "invalid_request_error",
        "model_not_found",
        "model",
    )
    assert "gpt-9" in error["message"]
    assert "llama, qwen, sm" in error["message"]


def test_while_no_backend_has_told_its_models_none_is_said_not_to_exist(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    silent = backend(start_upstream("gpu-a"), models={}, state=State.DOWN)
    answer = start_gateway([silent], {"models": []}).post(model="llama")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "no_capacity"
    assert "has told its models" in answer.json()["error"]["message"]
    assert answer.headers["retry-after"]


def test_without_a_model_the_default_serves_and_is_written_into_the_body(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    upstream = start_upstream("gpu-a")
    gateway = start_gateway(
        [backend(upstream, models={"llama": "meta/llama", "other": "other"})], {"default_model": "llama"}
    )
    assert gateway.post(body=b'{"messages":[]}').status_code == 200
    assert upstream.received[0].body == b'{"messages":[],"model":"meta/llama"}'


def test_without_a_model_and_a_default_the_request_is_refused(
    two: tuple[Gateway, Upstream, Upstream],
) -> None:
    gateway, _, _ = two
    answer = gateway.post(body=b'{"messages":[]}')
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "model_required"


def test_a_json_path_that_is_not_understood_goes_by_its_model_too(
    two: tuple[Gateway, Upstream, Upstream],
) -> None:
    gateway, first, _ = two
    assert gateway.post("/v1/rerank", body={"query": "a", "model": "llama"}).json()["server"] == "gpu-a"
    assert first.received[0].json["model"] == "meta/llama"


def test_the_list_is_the_union_of_what_the_fleet_serves(two: tuple[Gateway, Upstream, Upstream]) -> None:
    gateway, _, _ = two
    listed = gateway.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["llama", "qwen", "small", "sm\u00f6l"]
    assert all(model["object"] == "model" and isinstance(model["created"], int) for model in listed["data"])


def test_a_single_model_is_told_even_with_a_slash_in_its_name(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream, models={"meta/llama": "l"})])
    assert gateway.get("/v1/models/meta/llama").json()["id"] == "meta/llama"
    assert gateway.get("/v1/models/nothing").status_code == 404


def test_models_can_only_be_read(two: tuple[Gateway, Upstream, Upstream]) -> None:
    gateway, _, _ = two
    answer = gateway.post("/v1/models", body={})
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


def test_a_model_without_a_usable_backend_is_503_not_404(two: tuple[Gateway, Upstream, Upstream]) -> None:
    gateway, first, _ = two
    gateway.publish(backend(first, models={"llama": "meta/llama"}, state="down"))
    down, gone = gateway.post(model="llama"), gateway.post(model="small")
    assert (down.status_code, gone.status_code) == (503, 503)
    assert down.json()["error"]["code"] == gone.json()["error"]["code"] == "no_capacity"
    assert 1 <= int(down.headers["retry-after"]) <= 60


def test_a_key_sees_and_uses_only_its_models(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    upstream = start_upstream("gpu-a")
    gateway = start_gateway(
        [backend(upstream, models={"llama": "llama", "qwen": "qwen"})],
        {
            "models": [{"name": "qwen", "aliases": ["small"]}],
            "keys": [{"id": "team", "sha256": sha256("sk-1"), "models": ["qwen"]}],
        },
    )
    headers = {"Authorization": "Bearer sk-1"}
    listed = gateway.get("/v1/models", headers=headers).json()["data"]
    assert [model["id"] for model in listed] == ["qwen", "small"]
    assert gateway.get("/v1/models/llama", headers=headers).status_code == 404
    assert gateway.post(model="small", headers=headers).status_code == 200
    refused = gateway.post(model="llama", headers=headers)
    assert refused.status_code == 404
    assert "llama" not in refused.json()["error"]["message"].partition("Available")[2]
    assert len(upstream.received) == 1


def test_models_that_are_too_many_are_left_out_and_the_others_are_served(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    first, second = start_upstream("gpu-a"), start_upstream("gpu-b")
    adapters = {f"adapter-{k}": f"adapter-{k}" for k in range(300)}
    gateway = start_gateway([backend(first, models=adapters), backend(second)], workers=2)
    for _ in range(4):
        answer = gateway.post()
        assert (answer.status_code, answer.headers["x-tokenweir-backend"]) == (200, "gpu-b")
    listed = {model["id"] for model in gateway.get("/v1/models").json()["data"]}
    assert "llama" in listed
    assert len(listed) == 256
    served = next(name for name in listed if name != "llama")
    assert gateway.post(model=served).status_code == 200
    assert gateway.post(model=(adapters.keys() - listed).pop()).status_code == 404
    assert "44 models" not in gateway.error_log()
    assert "45 models" in gateway.error_log()
