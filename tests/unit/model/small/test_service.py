"""`model/small/service.py`, on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from model.small.encoder import Encoder
from model.small.head import Head
from model.small.service import Service, text_of

ENCODER = Encoder()
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Service], Coroutine[Any, Any, None]]


def talk(folder: Path, conversation: Talk) -> Service:
    """Runs a conversation with a service."""
    service = Service(ENCODER, Head.bundled(), folder / "head.npz")

    async def run() -> None:
        server = await asyncio.start_unix_server(service.serve, folder / "socket")
        async with server:
            reader, writer = await asyncio.open_unix_connection(folder / "socket")
            await asyncio.wait_for(conversation(reader, writer, service), 60)
            writer.close()

    asyncio.run(run())
    return service


def ask(text: str, cut: int = 0) -> bytes:
    inside = json.dumps(text).encode()[1:-1]
    return f"ask {len(inside)} {cut}\n".encode() + inside


def test_a_text_is_answered_with_a_correction(tmp_path: Path) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: Service) -> None:
        writer.write(ask('Say "yes"\nor no.'))
        number, correction = (await reader.readline()).split()
        assert int(number) == 1
        assert abs(float(correction)) < 1

    talk(tmp_path, conversation)


def test_an_output_teaches_it(tmp_path: Path) -> None:
    async def conversation(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, service: Service
    ) -> None:
        corrections = []
        for _ in range(30):
            writer.write(ask("Write an essay."))
            number, correction = (await reader.readline()).split()
            corrections.append(float(correction))
            writer.write(f"learn {int(number)} 0.5\n".encode())
        assert corrections[-1] > corrections[0] + 0.1
        assert len(service.encodings) <= 1

    assert talk(tmp_path, conversation).head.learned >= 29


@pytest.mark.parametrize("line", [b"learn 999 0.5\n", b"learn 1 nan\n"])
def test_what_cannot_be_learned_from_is_passed_over(tmp_path: Path, line: bytes) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: Service) -> None:
        writer.write(ask("Hello") + line + ask("Hello"))
        assert (await reader.readline()).startswith(b"1 ")
        assert (await reader.readline()).startswith(b"2 ")

    assert talk(tmp_path, conversation).head.learned == 0


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b"ask -1 0\n", b"ask 99999999 0\n", b"ask 3 9\n", b"ask x y\n"]
)
def test_a_caller_that_makes_no_sense_is_hung_up_on(tmp_path: Path, line: bytes) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: Service) -> None:
        writer.write(line)
        assert await reader.read() == b""

    talk(tmp_path, conversation)


def test_a_string_that_was_cut_is_read_as_far_as_it_goes() -> None:
    inside = json.dumps("中文 and more").encode()[1:-1]
    assert text_of(inside[:10]) == "中"
    assert text_of("中文".encode()[:4]) == "中"
    assert text_of(b'a \\"quoted\\" word\\') == 'a "quoted" word'
