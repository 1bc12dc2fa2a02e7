"""The metrics pages, read with the official Prometheus parser."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from emulator.engine import Exhaustion
from tests.integration.emulator.conftest import Running, Start


async def read(running: Running, path: str) -> dict[str, float]:
    """Samples by name, those of one name and several labels added up."""
    text = (await running.client.get(path)).text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith("_bucket"):
                found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


async def test_counters_and_histograms_tell_what_was_served(running: Running) -> None:
    answer = (await running.chat(10)).json()
    await running.chat(20, stream=True)
    page = await read(running, "/metrics")
    assert page["vllm:generation_tokens_total"] == 30
    assert page["vllm:prompt_tokens_total"] == 2 * answer["usage"]["prompt_tokens"]
    assert page["vllm:request_success_total"] == 2
    assert page["vllm:time_to_first_token_seconds_count"] == 2
    assert page["vllm:inter_token_latency_seconds_count"] == 28
    assert page["vllm:request_generation_tokens_sum"] == 30
    assert page["vllm:num_requests_running"] == page["vllm:num_requests_waiting"] == 0
    assert page["vllm:kv_cache_usage_perc"] == 0
    assert page["vllm:request_decode_time_seconds_sum"] == pytest.approx(
        page["vllm:inter_token_latency_seconds_sum"], rel=1e-6
    )


async def test_the_cache_config_tells_the_capacity(start: Start) -> None:
    running = await start(capacity=3_200)
    text = (await running.client.get("/metrics")).text
    assert 'block_size="16"' in text
    assert 'num_gpu_blocks="200"' in text


async def test_gauges_tell_what_runs_and_waits(start: Start) -> None:
    running = await start(speed=1.0, max_num_seqs=2)
    tasks = [asyncio.create_task(running.chat(500)) for _ in range(3)]
    await running.until(lambda state: state["waiting"] == 1)
    page = await read(running, "/metrics")
    assert (page["vllm:num_requests_running"], page["vllm:num_requests_waiting"]) == (2, 1)
    assert page["vllm:kv_cache_usage_perc"] > 0
    for task in tasks:
        task.cancel()


async def test_the_gpu_page_shows_a_busy_gpu_and_its_memory(start: Start) -> None:
    running = await start(speed=1.0)
    task = asyncio.create_task(running.chat(500))
    await running.until(lambda state: state["running"] == 1)
    for _ in range(300):
        page = await read(running, "/dcgm/metrics")
        if page["DCGM_FI_DEV_GPU_UTIL"] > 90:
            break
        await asyncio.sleep(0.1)
    assert page["DCGM_FI_DEV_GPU_UTIL"] > 90
    assert 0 < page["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"] < page["DCGM_FI_PROF_SM_ACTIVE"] <= 1
    total = page["DCGM_FI_DEV_FB_USED"] + page["DCGM_FI_DEV_FB_FREE"]
    assert page["DCGM_FI_DEV_FB_USED"] / total == pytest.approx(0.9, abs=0.01)
    assert total == pytest.approx(81_053, rel=0.01)
    assert page["DCGM_FI_DEV_XID_ERRORS"] == 0
    task.cancel()


async def test_an_engine_that_grows_holds_only_what_it_needs(start: Start) -> None:
    running = await start(kind=Exhaustion.CRASH)
    page = await read(running, "/dcgm/metrics")
    assert page["DCGM_FI_DEV_FB_USED"] < 0.3 * page["DCGM_FI_DEV_FB_FREE"]


async def test_the_exporter_has_a_port_of_its_own(running: Running) -> None:
    response = await running.client.get(f"{running.exporter}/metrics")
    assert "DCGM_FI_DEV_GPU_UTIL" in response.text
    assert "vllm:" not in response.text


async def test_a_split_model_shows_every_gpu(start: Start) -> None:
    running = await start(gpus=4, model="llama-2-70b")
    text = (await running.client.get("/dcgm/metrics")).text
    assert text.count("DCGM_FI_DEV_GPU_UTIL{") == 4
