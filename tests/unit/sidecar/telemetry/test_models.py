"""The list of models and the engines' own information pages."""

from __future__ import annotations

import json

import pytest

from sidecar.telemetry import models


def listing(*entries):
    return json.dumps({"object": "list", "data": list(entries)}).encode()


def test_vllm_tells_names_owner_and_context():
    body = listing(
        {"id": "base", "owned_by": "vllm", "max_model_len": 8192},
        {"id": "adapter", "owned_by": "vllm", "max_model_len": None, "parent": "base"},
    )
    reading = models.read(body, at=3)
    assert (reading.names, reading.owner, reading.context, reading.capacity) == (
        ("base", "adapter"),
        "vllm",
        8192,
        None,
    )


def test_llamacpp_tells_its_kv_tokens_in_the_meta_of_its_model():
    reading = models.read(
        listing({"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 2048, "n_ctx_train": 8192}}), 0
    )
    assert (reading.capacity, reading.context) == (2048, 2048)


def test_llamacpp_tells_its_slots_on_another_page():
    reading = models.with_information(
        models.read(listing({"id": "m"}), 0),
        "llamacpp",
        json.dumps({"total_slots": 4, "default_generation_settings": {"n_ctx": 1024}}).encode(),
    )
    assert (reading.slots, reading.capacity, reading.context) == (4, 4096, 1024)


def test_the_context_of_one_slot_of_llamacpp_is_not_taken_for_all_its_memory():
    listed = models.read(listing({"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 1024}}), 0)
    reading = models.with_information(listed, "llamacpp", b'{"total_slots": 4}')
    assert (reading.context, reading.capacity) == (1024, 4096)


def test_sglang_and_tgi_tell_their_limits_on_another_page():
    empty = models.read(listing(), 0)
    sglang = models.with_information(
        empty, "sglang", b'{"max_total_num_tokens": 9000, "context_length": 4096}'
    )
    assert (sglang.capacity, sglang.context) == (9000, 4096)
    tgi = models.with_information(
        empty, "tgi", b'{"model_id": "x", "max_total_tokens": 2048, "max_batch_total_tokens": 16000}'
    )
    assert (tgi.names, tgi.context, tgi.capacity) == (("x",), 2048, 16000)


def test_names_that_cannot_stand_in_a_header_are_left_out():
    reading = models.read(
        listing({"id": "a\nb"}, {"id": ""}, {"id": "x" * 300}, {"id": 7}, {"id": "good"}, "text"), 0
    )
    assert reading.names == ("good",)


def test_a_list_longer_than_the_contract_allows_is_cut():
    reading = models.read(listing(*({"id": f"m{n}"} for n in range(1000))), 0)
    assert len(reading.names) == models.MOST_MODELS


def test_figures_that_are_no_whole_positive_numbers_are_not_believed():
    reading = models.read(listing({"id": "m", "max_model_len": -1, "meta": {"n_ctx": True}}), 0)
    assert (reading.context, reading.capacity) == (None, None)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data": 3}', b"{}"])
def test_an_answer_that_is_no_list_says_so(body):
    with pytest.raises(ValueError, match="answer"):
        models.read(body, 0)


def test_ollama_tells_the_context_of_what_is_loaded():
    reading = models.with_information(
        models.read(listing({"id": "m", "owned_by": "library"}), 0),
        "ollama",
        json.dumps({"models": [{"name": "m", "context_length": 8192}, {"name": "n"}]}).encode(),
    )
    assert (reading.context, reading.capacity) == (8192, None)
