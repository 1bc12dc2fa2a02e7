"""Each engine's page gives the record that its documentation promises, and never an invented value."""

from __future__ import annotations

import pytest

from sidecar.telemetry import engines, llamacpp, ollama, sglang, tgi, trtllm, vllm
from sidecar.telemetry.exposition import Page
from sidecar.telemetry.readings import Total


def test_vllm_by_its_present_names(page):
    reading = vllm.read(page("vllm"), at=5.0)
    assert (reading.running, reading.waiting, reading.load) == (7, 3, 10)
    assert reading.kv_use == pytest.approx(0.4321, abs=1e-4)
    assert reading.capacity == 27_680 * 16
    assert (reading.output_tokens, reading.prompt_tokens, reading.preemptions) == (23_456, 123_456, 2)
    assert (reading.at, reading.source) == (5.0, "vllm")


def test_vllm_tells_times_and_lengths_as_sums_and_counts(page):
    reading = vllm.read(page("vllm"), at=0)
    assert reading.ttft == Total(21_500, 140)
    assert reading.queue_time == Total(8_250, 140)
    assert reading.prefill_time == Total(11_500, 140)
    assert reading.decode_time == Total(310_000, 134)
    assert reading.inter_token == Total(331_500, 23_305)
    assert reading.prompt_lengths == Total(117_000, 134)
    assert reading.output_lengths == Total(21_900, 134)
    assert reading.steps == Total(146_912, 4_300)


def test_vllm_tells_prefix_hits_and_how_requests_ended(page):
    reading = vllm.read(page("vllm"), at=0)
    assert (reading.prefix_queries, reading.prefix_hits) == (90_210, 60_140)
    assert (reading.finished, reading.aborted) == (134, 3)
    assert reading.reserved_tokens == pytest.approx(0.43210987654321 * 27_680 * 16)


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


def test_sglang_tells_held_and_reserved_tokens_and_its_times(page):
    reading = sglang.read(page("sglang"), at=0)
    assert (reading.reserved_tokens, reading.held_tokens) == (123_859, 117_666)
    assert (reading.preemptions, reading.prefix_hits, reading.finished) == (12, 2_500_000, 7_564)
    assert (reading.ttft, reading.queue_time) == (Total(2_311_500, 7_564), Total(1_800_500, 7_564))
    assert reading.prefill_time == Total(605_120, 7_564)
    assert reading.inter_token == Total(224_000, 10_000)


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


def test_llamacpp_sums_its_times_and_does_not_count_prompts(page):
    reading = llamacpp.read(page("llamacpp"), at=0)
    assert reading.prefill_time == Total(420, 0)
    assert reading.inter_token == Total(100, 5)


def test_tgi_tells_the_duration_of_its_steps_by_kind(page):
    reading = tgi.read(page("tgi"), at=0)
    assert reading.step_time.sum == pytest.approx(17_052)
    assert (reading.step_time.count, reading.prefill_steps) == (812, Total(2_400, 40))
    assert (reading.queue_time, reading.prompt_lengths) == (Total(1_250, 46), Total(23_000, 46))
    assert (reading.finished, reading.reserved_tokens, reading.prompt_tokens) == (39, 5_120, 23_000)


def test_trtllm_by_its_own_server(page):
    reading = trtllm.read(page("trtllm"), at=2)
    assert (reading.source, reading.running, reading.waiting, reading.paused) == ("trtllm", 9, 2, 1)
    assert (reading.kv_use, reading.capacity, reading.reserved_tokens) == (0.62, 199_648, 123_776)
    assert (reading.output_tokens, reading.prompt_tokens, reading.prefix_hits) == (20_100, 51_200, 16_384)
    assert (reading.finished, reading.prefill_time) == (100, Total(7_000, 100))
    assert (reading.queue_time, reading.decode_time) == (Total(12_000, 100), Total(180_000, 100))


def test_trtllm_behind_triton(page):
    reading = trtllm.read(page("triton"), at=2)
    assert (reading.source, reading.running, reading.waiting, reading.paused) == ("triton", 12, 3, 0)
    assert (reading.kv_use, reading.capacity, reading.reserved_tokens) == (0.25, 399_296, 99_840)
    assert (reading.output_tokens, reading.prompt_tokens, reading.finished) == (46_500, 155_000, 310)


def test_triton_before_it_tells_the_waiting_counts_what_is_not_scheduled(page):
    body = page("triton").body
    lines = [line for line in body.split(b"\n") if b'"waiting"' not in line and b'"fraction"' not in line]
    reading = trtllm.read(Page(b"\n".join(lines)), at=0)
    assert reading.waiting == 3
    assert reading.kv_use == pytest.approx(1560 / 6239)


def test_ollama_tells_which_models_are_loaded_and_no_load(page):
    reading = ollama.read(page("ollama"), at=1)
    assert reading.loaded == ("mistral:latest",)
    assert (reading.running, reading.waiting, reading.load, reading.kv_use) == (None, None, None, None)
    assert ollama.read(Page(b'{"models": []}'), at=1).loaded == ()


def test_tgi(page):
    reading = tgi.read(page("tgi"), at=0)
    assert (reading.running, reading.waiting, reading.output_tokens) == (5, 1, 2210)
    assert reading.kv_use is None


@pytest.mark.parametrize("read", [vllm.read, sglang.read, llamacpp.read, tgi.read, trtllm.read, ollama.read])
def test_a_page_of_something_else_is_no_reading(read):
    assert read(Page(b"# TYPE go_goroutines gauge\ngo_goroutines 9\n"), 0) is None
    assert read(Page(b""), 0) is None


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("vllm", "vllm"),
        ("vllm_old", "vllm"),
        ("sglang", "sglang"),
        ("llamacpp", "llamacpp"),
        ("tgi", "tgi"),
        ("trtllm", "trtllm"),
        ("triton", "trtllm"),
    ],
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
