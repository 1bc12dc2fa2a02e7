"""Answers the gateway's workers of this host on a Unix socket.

    move gpu-a gpu-b chat 1800 412 5 9000\\n<5 bytes: the engines' model><9000 bytes: the request's body>
        -> done 1792 234881024 0\\n           tokens, bytes (0: not told), bytes of parameters that follow
        -> failed gpu-a has nothing of it\\n
        -> late\\n

The numbers of a question are the tokens thought to be cached at the first backend, the ms that the request
waits, and the sizes of what follows. A worker that waits no longer closes the connection: that ends the move.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import structlog

from sidecar.telemetry.http import FetchError
from sidecar.transfer.port import Adapter, End, Move, Moved, TransferError

log = structlog.get_logger(__name__)

MOST_BYTES: Final = 64 * 1024**2
MOST_AT_ONCE: Final = 64
SHOWN: Final = 300


class Service:
    """Serves while it is open. `adapter` moves; `end_of` finds a backend by its id."""

    def __init__(self, socket: Path, adapter: Adapter, end_of: Callable[[str], End]) -> None:
        self._socket, self._adapter, self._end_of = socket, adapter, end_of
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._moving = 0
        self._told: str | None = None

    async def open(self) -> None:
        """Listen. Raises OSError."""
        self._socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._socket)
        if os.geteuid() == 0:
            # The folder is closed to all but the workers' user.
            owner = self._socket.parent.stat()
            os.chown(self._socket, owner.st_uid, owner.st_gid)
        self._socket.chmod(0o600)

    async def close(self) -> None:
        """Listen no more; moves under way end."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._connections):
                writer.close()
            self._server = None
            self._socket.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
                while line := await reader.readline():
                    answer = await self._answer(line, reader)
                    if answer is None:
                        break
                    writer.write(answer)
                    await writer.drain()
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _answer(self, line: bytes, reader: asyncio.StreamReader) -> bytes | None:
        """The answer to a question; None where nobody waits for it any more. Raises ValueError where it is
        none."""
        verb, source, target, kind, *numbers = line.decode().split()
        tokens, ms, model_size, size = map(int, numbers)
        if verb != "move" or not 0 <= size <= MOST_BYTES or not 0 <= model_size <= MOST_BYTES:
            raise ValueError("no such question")
        model = (await reader.readexactly(model_size)).decode()
        body = await reader.readexactly(size)
        if self._moving >= MOST_AT_ONCE:
            return self._failed(f"{MOST_AT_ONCE} caches are being moved already")
        self._moving += 1
        try:
            ends = self._end_of(source), self._end_of(target)
            move = Move(*ends, kind, model, tokens, ms, body)
            async with asyncio.timeout(ms / 1000):
                moved = await _while_open(reader, self._adapter.move(move))
        except TimeoutError:
            self._failed(f"{source} to {target}: not done in time")
            return b"late\n"
        except (TransferError, FetchError) as error:
            return self._failed(f"{source} to {target}: {error}")
        finally:
            self._moving -= 1
        if moved is None:
            return None
        self._told = None
        parameters = moved.parameters.encode()
        return f"done {moved.tokens} {moved.bytes} {len(parameters)}\n".encode() + parameters

    def _failed(self, reason: str) -> bytes:
        """Each reason is logged once, until another comes or a move is done."""
        if reason != self._told:
            self._told = reason
            log.warning("kv_transfer_failed", reason=reason)
        return f"failed {' '.join(reason.split())[:SHOWN]}\n".encode()


async def _while_open(reader: asyncio.StreamReader, moving: Awaitable[Moved]) -> Moved | None:
    """What the move comes to; None, and it is cancelled, when the other side closes first."""
    task = asyncio.ensure_future(moving)
    closed = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({task, closed}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return None
    finally:
        for one in (task, closed):
            one.cancel()
        await asyncio.gather(task, closed, return_exceptions=True)
