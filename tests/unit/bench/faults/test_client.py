"""The client of the faults bench, against the witness engine over real connections."""

from __future__ import annotations

import asyncio

import pytest

from bench.faults import client, witness
from bench.faults.client import Outcome, judge
from bench.faults.traffic import Leave, Request
from bench.servers import ports

STREAM = b'{"model":"m","messages":[],"max_tokens":5,"stream":true}'
WHOLE = b'{"model":"m","messages":[],"max_tokens":5}'


def request(stream: bool = True, leave: Leave | None = None, after: float = 0.03) -> Request:
    return Request("r", 0, STREAM if stream else WHOLE, stream, leave, after)


async def exchange(sent: Request, executed: bool = True) -> tuple[client.Record, witness.Witness]:
    engine = witness.Witness()
    port = ports.free_ports(1)[0]
    server = await witness.serve(engine, port)
    record = await client.send(sent, port)
    for _ in range(1000 if executed else 10):
        await asyncio.sleep(0.01)
        if engine.requests and engine.running == 0:
            break
    server.close()
    return record, engine


@pytest.mark.parametrize("stream", [True, False])
async def test_a_whole_answer_is_ok(stream: bool):
    record, engine = await exchange(request(stream))
    assert (record.outcome, record.status, record.detail) == (Outcome.OK, 200, "")
    assert engine.requests["r"][0].done is not None
    assert engine.running == 0


@pytest.mark.parametrize("leave", [Leave.CONNECTED, Leave.HEAD, Leave.BODY])
async def test_a_client_that_leaves_early_is_never_executed(leave: Leave):
    record, engine = await exchange(request(leave=leave), executed=False)
    assert record.outcome is Outcome.LEFT
    assert engine.requests == {}


@pytest.mark.parametrize("leave", [Leave.SENT, Leave.WAITING, Leave.FIRST, Leave.STREAM])
async def test_the_engine_sees_a_client_leave_later(leave: Leave):
    record, engine = await exchange(request(leave=leave))
    assert record.outcome is Outcome.LEFT
    seen = engine.requests["r"][0]
    assert seen.done is None
    assert seen.closed is not None
    assert 0 <= seen.closed - record.ended < 5


async def test_a_closed_port_is_a_broken_request():
    record = await client.send(request(), ports.free_ports(1)[0])
    assert record.outcome is Outcome.BROKEN
    assert "ConnectionRefused" in record.detail


@pytest.mark.parametrize(
    ("status", "stream", "answer", "outcome"),
    [
        (200, False, b'{"choices":[],"usage":{}}', Outcome.OK),
        (200, False, b"{}", Outcome.BROKEN),
        (503, False, b'{"error":{}}', Outcome.ERROR),
        (200, True, b"data: {}\n\ndata: [DONE]\n\n", Outcome.OK),
        (200, True, b"data: {}\n\n", Outcome.BROKEN),
        (200, True, b'data: {}\n\ndata: {"error":{"code":"upstream_broke"}}\n\n', Outcome.ERROR),
    ],
)
def test_an_answer_is_judged_by_its_end(status: int, stream: bool, answer: bytes, outcome: Outcome):
    assert judge(status, stream, answer) is outcome
