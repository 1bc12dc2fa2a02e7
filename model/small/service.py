"""`python -m model.small.service SOCKET HEAD`: answers the gateways' workers of this host on a Unix socket.

    ask 24 0\\n<24 bytes>          ->  17 -0.1834\\n      number of the text, correction of the median
    learn 17 0.4210\\n             ->  nothing            how far its output lay from the median

The bytes are the inside of a JSON string, or two pieces of one; `ask SIZE CUT` says where the second begins
(0: one piece). The text is encoded and forgotten; its encoding is kept until its output is known. While too
many wait the answer is `busy`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import sys
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from model.small.encoder import Array, Encoder
from model.small.head import Head

MOST_WAITING: Final = 8
MOST_BYTES: Final = 8192
KEPT: Final = 10_000
"""Encodings whose outputs are awaited."""
SAVE_S: Final = 300.0


def text_of(inside: bytes) -> str:
    """The text that the inside of a JSON string stands for; of one that was cut, what is left of it."""
    text = inside.decode("utf-8", "ignore")
    for end in range(len(text), max(-1, len(text) - 12), -1):
        try:
            return str(json.loads(f'"{text[:end]}"', strict=False))
        except ValueError:
            continue
    return text


class Service:
    """The encoder, the head, and the encodings of texts whose outputs are not known yet."""

    def __init__(self, encoder: Encoder, head: Head, path: Path) -> None:
        self._encoder, self.head, self._path = encoder, head, path
        self._worker = ThreadPoolExecutor(1, "encoder")
        self._waiting = 0
        self._number = 0
        self._saved_at = time.monotonic()
        self.encodings: OrderedDict[int, Array] = OrderedDict()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a worker."""
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                verb, *numbers = line.split()
                if verb == b"ask":
                    writer.write(await self._ask(reader, int(numbers[0]), int(numbers[1])))
                    await writer.drain()
                elif verb == b"learn":
                    self.learn(int(numbers[0]), float(numbers[1]))
                else:
                    break
        writer.close()

    async def _ask(self, reader: asyncio.StreamReader, size: int, cut: int) -> bytes:
        if not 0 <= cut <= size <= MOST_BYTES:
            raise ValueError("no such size")
        inside = await reader.readexactly(size)
        if self._waiting >= MOST_WAITING:
            return b"busy\n"
        pieces = [inside[:cut], inside[cut:]] if cut else [inside]
        text = " ".join(text_of(piece) for piece in pieces)
        self._waiting += 1
        try:
            encoding = await asyncio.get_running_loop().run_in_executor(
                self._worker, self._encoder.encode, text
            )
        finally:
            self._waiting -= 1
        self._number += 1
        self.encodings[self._number] = encoding
        if len(self.encodings) > KEPT:
            self.encodings.popitem(last=False)
        return f"{self._number} {self.head.correction(encoding):.4f}\n".encode()

    def learn(self, number: int, residual: float) -> None:
        """An output is known. What cannot be a residual tells nothing."""
        encoding = self.encodings.pop(number, None)
        if encoding is None or not math.isfinite(residual):
            return
        self.head.learn(encoding, residual)
        if time.monotonic() - self._saved_at >= SAVE_S:
            self.save()

    def save(self) -> None:
        """Keep the head for the next start."""
        self._saved_at = time.monotonic()
        with contextlib.suppress(OSError):
            self.head.save(self._path)


async def run(socket: Path, path: Path) -> None:
    """Serve until SIGTERM."""
    service = Service(Encoder(), Head.load(path), path)
    socket.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(service.serve, socket)
    if os.geteuid() == 0:
        # The folder is closed to all but the workers' user.
        owner = socket.parent.stat()
        os.chown(socket, owner.st_uid, owner.st_gid)
    socket.chmod(0o600)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with server:
        await stopped.wait()
    service.save()
    socket.unlink(missing_ok=True)


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), Path(sys.argv[2])))
