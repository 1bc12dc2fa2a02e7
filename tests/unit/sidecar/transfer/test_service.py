"""`sidecar/transfer/service.py` and `transfers.py`: what a worker of the gateway is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sidecar.telemetry.health import Look
from sidecar.telemetry.http import FetchError, Origin
from sidecar.transfer.port import End, Move, Moved, TransferError
from sidecar.transfer.service import MOST_AT_ONCE, Service
from sidecar.transfer.transfers import Transfers
from tokenweir.config.transfer import BackendTransferConfig, TransferConfig
from tokenweir.contract.records import TransferAdapter

BODY = b'{"model":"public"}'


class Adapter:
    """Answers as it is told."""

    def __init__(self) -> None:
        self.moves: list[Move] = []
        self.cancelled = 0
        self.act: Callable[[], Awaitable[Moved]] = self.done

    async def done(self) -> Moved:
        return Moved(900, 4096)

    async def move(self, move: Move) -> Moved:
        self.moves.append(move)
        try:
            return await self.act()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


def end_of(backend_id: str) -> End:
    if backend_id == "gone":
        raise TransferError("no backend 'gone' with an address")
    if backend_id == "locked":
        raise FetchError(Look.ERROR, "its key cannot be read")
    return End(backend_id, Origin("http://10.0.0.1:8000", "engine.test"), BackendTransferConfig())


async def until(condition: Callable[[], Any]) -> None:
    """Waits until it is true."""
    async with asyncio.timeout(20):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


class Worker:
    """A connection of the gateway's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def ask(self, source: str = "gpu-a", ms: int = 5000, body: bytes = BODY) -> None:
        model = b"llama 3"
        self.writer.write(
            f"move {source} gpu-b chat 1000 {ms} {len(model)} {len(body)}\n".encode() + model + body
        )

    async def line(self) -> str:
        return (await asyncio.wait_for(self.reader.readline(), 20)).decode().rstrip("\n")


@pytest.fixture
def adapter() -> Adapter:
    return Adapter()


@pytest.fixture
async def service(adapter: Adapter, tmp_path: Path) -> AsyncIterator[Service]:
    service = Service(tmp_path / "keys" / "transfer.sock", adapter, end_of)
    await service.open()
    yield service
    await service.close()


@pytest.fixture
async def worker(service: Service, tmp_path: Path) -> AsyncIterator[Worker]:
    reader, writer = await asyncio.open_unix_connection(tmp_path / "keys" / "transfer.sock")
    yield Worker(reader, writer)
    writer.close()


async def test_a_move_is_answered_with_what_was_moved(worker: Worker, adapter: Adapter) -> None:
    worker.ask()
    assert await worker.line() == "done 900 4096 0"
    (move,) = adapter.moves
    assert (move.source.id, move.target.id, move.kind, move.model) == ("gpu-a", "gpu-b", "chat", "llama 3")
    assert (move.tokens, move.ms, move.body) == (1000, 5000, BODY)
    assert move.request() == {"model": "llama 3"}


async def test_parameters_follow_their_size(worker: Worker, adapter: Adapter) -> None:
    async def act() -> Moved:
        return Moved(900, parameters='{"é":1}')

    adapter.act = act
    worker.ask()
    assert await worker.line() == "done 900 0 8"
    assert await worker.reader.readexactly(8) == '{"é":1}'.encode()


async def test_one_connection_serves_many(worker: Worker) -> None:
    for _ in range(3):
        worker.ask()
        assert await worker.line() == "done 900 4096 0"


async def test_what_goes_wrong_is_one_line_and_the_connection_goes_on(
    worker: Worker, adapter: Adapter
) -> None:
    async def act() -> Moved:
        raise TransferError("nothing\nof it")

    adapter.act = act
    worker.ask()
    assert await worker.line() == "failed gpu-a to gpu-b: nothing of it"
    worker.ask("gone")
    assert await worker.line() == "failed gone to gpu-b: no backend 'gone' with an address"
    worker.ask("locked")
    assert await worker.line() == "failed locked to gpu-b: its key cannot be read"


async def test_one_that_takes_too_long_is_late_and_ends(worker: Worker, adapter: Adapter) -> None:
    adapter.act = asyncio.Event().wait  # type: ignore[assignment]
    worker.ask(ms=50)
    assert await worker.line() == "late"
    assert adapter.cancelled == 1


async def test_a_worker_that_closes_ends_its_move(worker: Worker, adapter: Adapter) -> None:
    adapter.act = asyncio.Event().wait  # type: ignore[assignment]
    worker.ask()
    await worker.writer.drain()
    await until(lambda: adapter.moves)
    worker.writer.close()
    await until(lambda: adapter.cancelled)


async def test_no_more_than_so_many_are_moved_at_once(
    service: Service, adapter: Adapter, tmp_path: Path
) -> None:
    adapter.act = asyncio.Event().wait  # type: ignore[assignment]
    workers = []
    for _ in range(MOST_AT_ONCE + 1):
        workers.append(Worker(*await asyncio.open_unix_connection(tmp_path / "keys" / "transfer.sock")))
        workers[-1].ask()
    async with asyncio.timeout(20):
        answers = [asyncio.ensure_future(worker.line()) for worker in workers]
        done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    assert [one.result() for one in done] == ["failed 64 caches are being moved already"]
    for worker in workers:
        worker.writer.close()
    for one in answers:
        one.cancel()


@pytest.mark.parametrize(
    "line", [b"ask 5 0\n", b"move a b chat 1 2 3\n", b"move a b chat 1 2 3 -4\n", b"\xff\n"]
)
async def test_what_is_no_question_closes_the_connection(worker: Worker, line: bytes) -> None:
    worker.writer.write(line)
    assert await worker.line() == ""


async def test_the_socket_is_for_the_workers_only(service: Service, tmp_path: Path) -> None:
    socket = tmp_path / "keys" / "transfer.sock"
    assert socket.stat().st_mode & 0o777 == 0o600
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    await service.close()
    assert not socket.exists()


class TestTransfers:
    """The service follows the configuration."""

    @pytest.fixture
    async def transfers(self, tmp_path: Path) -> AsyncIterator[Transfers]:
        found = Transfers(tmp_path / "transfer.sock", tmp_path, end_of)
        task = asyncio.create_task(found.run())
        yield found
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await found.stop()

    async def test_it_is_there_while_an_adapter_is_configured(
        self, transfers: Transfers, tmp_path: Path
    ) -> None:
        socket = tmp_path / "transfer.sock"
        transfers.follow(TransferConfig())
        await asyncio.sleep(0.05)
        assert not socket.exists()
        transfers.follow(TransferConfig(adapter=TransferAdapter.VLLM))
        await until(socket.exists)
        transfers.follow(TransferConfig())
        await until(lambda: not socket.exists())

    async def test_a_file_that_cannot_be_read_leaves_it_away(
        self, transfers: Transfers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sidecar.transfer.transfers.AGAIN_S", 0.05)
        transfers.follow(TransferConfig(adapter=TransferAdapter.AGENT, token_file="agents.token"))
        await asyncio.sleep(0.2)
        assert not (tmp_path / "transfer.sock").exists()
        (tmp_path / "agents.token").write_text("a-token-of-theirs\n")
        await until((tmp_path / "transfer.sock").exists)
