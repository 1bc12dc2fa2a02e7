"""Faults on order, and what clients see of a full memory."""

from __future__ import annotations

import asyncio
import contextlib
import time

import httpx
import pytest

from emulator.engine import Exhaustion
from tests.integration.emulator.conftest import MODEL, Running, Start


async def test_a_starting_server_refuses_until_it_is_ready(start: Start) -> None:
    running = await start(startup_seconds=1.5)
    assert (await running.client.get("/health")).status_code == 503
    refused = await running.chat(2)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "starting")
    await running.until(lambda state: state["ready"])
    assert (await running.client.get("/health")).status_code == 200
    assert (await running.chat(2)).status_code == 200
    assert (await running.executed())["total"] == 1


async def test_a_frozen_server_accepts_and_says_nothing_until_it_thaws(running: Running) -> None:
    await running.fault("freeze")
    task = asyncio.create_task(running.chat(3))
    for path in ("/health", "/metrics", "/dcgm/metrics"):
        with pytest.raises(httpx.ReadTimeout):
            await running.client.get(path, timeout=httpx.Timeout(20, read=0.1))
    assert not task.done()
    await running.fault("none")
    assert (await task).status_code == 200


async def test_a_freeze_stops_streams_that_flow_and_they_go_on_after_it(start: Start) -> None:
    running = await start(speed=1.0)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "stream": True}
    headers = {"X-Emulator-Output-Tokens": "30"}
    async with running.client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
        lines = response.aiter_lines()
        async for line in lines:
            if '"content":"' in line:
                break
        begin = time.monotonic()
        await running.fault("freeze", seconds=0.4)
        received = [line async for line in lines]
    assert received[-2:] == ["data: [DONE]", ""]
    assert time.monotonic() - begin > 0.4


async def test_a_stalled_engine_is_healthy_but_its_counters_stand_still(start: Start) -> None:
    running = await start(speed=1.0)
    task = asyncio.create_task(running.chat(100))
    await running.until(lambda state: state["running"] == 1)
    await running.fault("stall")
    assert (await running.client.get("/health")).status_code == 200
    before = (await running.client.get("/metrics")).text
    await asyncio.sleep(0.1)
    assert (await running.client.get("/metrics")).text == before
    await running.fault("none")
    assert (await task).status_code == 200


async def test_a_slow_engine_takes_longer(start: Start) -> None:
    running = await start(speed=1.0)

    async def seconds() -> float:
        begin = running.server.clock.now()
        await running.chat(4)
        return running.server.clock.now() - begin

    await running.fault("slow", factor=8)
    slow = await seconds()
    await running.fault("none")
    assert slow > 2 * min([await seconds() for _ in range(3)])


async def test_fail_fast_answers_with_an_error_and_executes_nothing(running: Running) -> None:
    await running.fault("fail_fast", status=502)
    assert (await running.chat(3)).status_code == 502
    assert (await running.executed())["total"] == 0


async def test_fail_fast_can_hit_a_share_of_the_requests(running: Running) -> None:
    await running.fault("fail_fast", share=0.5)
    codes = [(await running.chat(1)).status_code for _ in range(40)]
    assert 5 < codes.count(500) < 35


async def test_drop_midstream_cuts_the_connection_after_some_tokens(running: Running) -> None:
    await running.fault("drop_midstream", after_tokens=3)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "stream": True}
    tokens = 0
    with pytest.raises(httpx.RemoteProtocolError):
        async with running.client.stream("POST", "/v1/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                tokens += '"content":"' in line and '"content":""' not in line
    assert tokens == 3
    with pytest.raises(httpx.RemoteProtocolError):
        await running.chat(20)
    assert (await running.state())["running"] == 0


async def test_an_xid_error_fails_what_runs_and_shows_on_the_gpu(start: Start) -> None:
    running = await start(speed=1.0)
    task = asyncio.create_task(running.chat(500))
    await running.until(lambda state: state["running"] == 1)
    await running.fault("xid", code=79)
    failed = await task
    assert (failed.status_code, failed.json()["error"]["message"]) == (500, "GPU error: XID 79")
    assert "DCGM_FI_DEV_XID_ERRORS" in (text := (await running.client.get("/dcgm/metrics")).text)
    assert next(line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_XID")).endswith(" 79")
    assert (await running.chat(1)).status_code == 500, "a GPU that fell off the bus does nothing more"
    await running.fault("none")
    assert (await running.chat(1)).status_code == 200


async def test_an_application_xid_fails_only_what_runs(running: Running) -> None:
    await running.fault("xid", code=31)
    assert (await running.chat(1)).status_code == 200


async def test_refused_metrics_leave_the_rest_alone(running: Running) -> None:
    await running.fault("refuse_metrics")
    assert (await running.client.get("/metrics")).status_code == 503
    assert (await running.client.get("/health")).status_code == 200
    assert (await running.chat(1)).status_code == 200


async def test_a_fault_ends_after_its_seconds(running: Running) -> None:
    begin = time.monotonic()
    await running.fault("fail_fast", seconds=1)
    assert (await running.chat(1)).status_code == 500
    for _ in range(1000):
        await asyncio.sleep(0.02)
        if (await running.chat(1)).status_code == 200:
            break
    assert 1 <= time.monotonic() - begin < 20


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"kind": "flood"}, "one of none, freeze"),
        ({"kind": "slow", "speed": 2}, "slow has no 'speed'; it has: factor, seconds"),
        ({"kind": "slow", "factor": "x"}, "factor must be a number from 0.01 to 10000"),
        ([], "one of none, freeze"),
    ],
)
async def test_a_fault_that_there_is_not_is_refused(running: Running, body: object, message: str) -> None:
    response = await running.client.post("/admin/fault", json=body)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


async def test_a_full_memory_of_the_abort_kind_fails_all_in_flight(start: Start) -> None:
    running = await start(kind=Exhaustion.ABORT, capacity=320)
    answers = await asyncio.gather(*(running.chat(150, stream=stream) for stream in (False, True, False)))
    assert [answer.status_code for answer in answers if not answer.text.startswith("data:")].count(500) >= 2
    streamed = [answer for answer in answers if answer.text.startswith("data:")]
    assert all("KV memory is full" in answer.text for answer in streamed)
    assert (await running.chat(10)).status_code == 200


async def test_a_full_memory_of_the_crash_kind_kills_the_process(start: Start) -> None:
    running = await start(kind=Exhaustion.CRASH, capacity=320)
    tasks = [asyncio.create_task(running.chat(150)) for _ in range(3)]
    for _ in range(2000):
        if running.crashes:
            break
        await asyncio.sleep(0.01)
    assert running.crashes
    for task in tasks:
        task.cancel()


async def test_a_full_memory_of_the_preempt_kind_serves_everyone_later(start: Start) -> None:
    running = await start(capacity=320)
    answers = await asyncio.gather(*(running.chat(150) for _ in range(3)))
    assert [answer.json()["usage"]["completion_tokens"] for answer in answers] == [150] * 3
    assert (await running.state())["preemptions"] > 0


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_place_at_once(start: Start, stream: bool) -> None:
    running = await start(speed=1.0)

    async def leave() -> float:
        await running.client.delete("/admin/executed")
        task = asyncio.create_task(running.chat(2000, id="gone", stream=stream))
        await running.until(lambda state: state["running"] == 1)
        left = time.time()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await running.until(lambda state: state["running"] == 0)
        report = await running.executed()
        assert (report["total"], report["requests"], report["abort_total"]) == (1, {"gone": 1}, 1)
        assert report["aborted"][0]["request_id"] == "gone"
        return float(report["aborted"][0]["time"]) - left

    took = [await leave()]
    while min(took) >= 0.1 and len(took) < 5:
        took.append(await leave())
    assert 0 <= min(took) < 0.1
    assert f'finished_reason="abort"}} {len(took)}.0' in (await running.client.get("/metrics")).text


async def test_an_engine_may_finish_what_nobody_waits_for(start: Start) -> None:
    running = await start(speed=1.0, finish_abandoned=True)
    task = asyncio.create_task(running.chat(100))
    await running.until(lambda state: state["running"] == 1)
    await running.fault("stall")
    task.cancel()
    await asyncio.sleep(0.1)
    assert (await running.state())["running"] == 1
    await running.fault("none")
    await running.until(lambda state: state["running"] == 0)
    assert (await running.executed())["abort_total"] == 0


async def test_executions_are_counted_by_request_id(running: Running) -> None:
    await running.chat(1, id="a")
    await running.chat(1, id="a")
    await running.chat(1, id="b", stream=True)
    report = await running.executed()
    assert (report["total"], report["requests"]) == (3, {"a": 2, "b": 1})
    assert (await running.client.delete("/admin/executed")).status_code == 204
    assert (await running.executed())["total"] == 0
