"""Each engine's page gives the record that its documentation promises, and never an invented value."""

from __future__ import annotations

import pytest

from sidecar.telemetry import dcgm, engines, llamacpp, sglang, tgi, vllm
from sidecar.telemetry.exposition import Page


def test_vllm_by_its_present_names(page):
    reading = vllm.read(page("vllm"), at=5.0)
    assert (reading.running, reading.waiting, reading.load) == (7, 3, 10)
    assert reading.kv_use == pytest.approx(0.4321, abs=1e-4)
    assert reading.capacity == 27_680 * 16
    assert (reading.output_tokens, reading.prompt_tokens, reading.preemptions) == (23_456, 123_456, 2)
    assert (reading.at, reading.source) == (5.0, "vllm")


def test_vllm_by_its_names_before_2025(page):
    reading = vllm.read(page("vllm_old"), at=0)
    assert (reading.running, reading.kv_use, reading.capacity) == (2, 0.125, 41_408)


def test_vllm_with_data_parallel_engines_adds_requests_and_capacity_and_averages_use(page):
    reading = vllm.read(page("vllm_data_parallel"), at=0)
    assert (reading.running, reading.waiting, reading.capacity) == (10, 1, 32_000)
    assert reading.kv_use == pytest.approx(0.3)


def test_vllm_before_it_has_measured_its_memory_tells_no_capacity():
    page = Page(
        b'vllm:num_requests_running 0\nvllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1\n'
    )
    reading = vllm.read(page, at=0)
    assert (reading.capacity, reading.kv_use, reading.waiting) == (None, None, None)


def test_sglang(page):
    reading = sglang.read(page("sglang"), at=0)
    assert (reading.running, reading.waiting, reading.kv_use) == (162, 2826, 0.28)
    assert reading.capacity == 442_353


def test_sglang_moves_while_its_token_counters_stand_still(page):
    body = page("sglang").body
    before = sglang.read(Page(body), at=0)
    after = sglang.read(Page(body.replace(b"123859.0", b"123999.0")), at=1)
    assert before.movement != after.movement


def test_llamacpp_tells_neither_capacity_nor_kv_use(page):
    reading = llamacpp.read(page("llamacpp"), at=0)
    assert (reading.running, reading.waiting) == (1, 2)
    assert (reading.capacity, reading.kv_use) == (None, None)


def test_llamacpp_before_2025_tells_its_kv_use(page):
    body = (
        page("llamacpp").body
        + b"# TYPE llamacpp:kv_cache_usage_ratio gauge\nllamacpp:kv_cache_usage_ratio 0.5\n"
    )
    assert llamacpp.read(Page(body), at=0).kv_use == 0.5


def test_tgi(page):
    reading = tgi.read(page("tgi"), at=0)
    assert (reading.running, reading.waiting, reading.output_tokens) == (5, 1, 2210)
    assert reading.kv_use is None


def test_dcgm_over_all_cards_of_the_server(page):
    reading = dcgm.read(page("dcgm"), at=0)
    assert (reading.memory_use, reading.utilization, reading.cards) == (0.75, 0.8, 2)
    assert (reading.temperature, reading.power, reading.xid) == (52, 611, 79)
    assert reading.tensor_active == pytest.approx(0.30)
    assert reading.sm_active is None
    assert reading.name == "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize("read", [vllm.read, sglang.read, llamacpp.read, tgi.read, dcgm.read])
def test_a_page_of_something_else_is_no_reading(read):
    assert read(Page(b"# TYPE go_goroutines gauge\ngo_goroutines 9\n"), 0) is None
    assert read(Page(b""), 0) is None


@pytest.mark.parametrize(
    ("name", "engine"),
    [("vllm", "vllm"), ("vllm_old", "vllm"), ("sglang", "sglang"), ("llamacpp", "llamacpp"), ("tgi", "tgi")],
)
def test_an_engine_is_told_by_its_page(page, name, engine):
    assert engines.by_page(page(name).body) == engine


def test_an_engine_is_told_by_its_owner_and_server_header():
    assert engines.by_owner("vllm") == "vllm"
    assert engines.by_owner("library") == "ollama"
    assert engines.by_owner("me") is None
    assert engines.by_server("llama.cpp") == "llamacpp"
    assert engines.by_server("uvicorn") is None
    assert engines.by_page(b"nothing") is None
