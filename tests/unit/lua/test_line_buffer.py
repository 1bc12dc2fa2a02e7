"""`lua/tokenweir/core/line_buffer.lua`: the bytes of a line that is not whole yet."""

from __future__ import annotations

from typing import Any

import pytest

from tokenweir.luavm import new_runtime


class Buffer:
    """One buffer."""

    def __init__(self) -> None:
        self._lua = new_runtime()
        self.module = self._lua.eval(b'require "tokenweir.core.line_buffer"')
        self.made = self.module.new()
        self._append = self._lua.eval(b"function(buffer, text) buffer:append(text, #text) end")
        self._clear = self._lua.eval(b"function(buffer) buffer:clear() end")
        self._text = self._lua.eval(b'function(b) return require("ffi").string(b.p, b.size) end')
        self._behind = self._lua.eval(b"function(buffer) return buffer.p[buffer.size] end")

    def append(self, text: bytes) -> None:
        """Add bytes."""
        self._append(self.made, text)

    def clear(self) -> None:
        """Begin anew."""
        self._clear(self.made)

    @property
    def text(self) -> bytes:
        """What it holds."""
        return bytes(self._text(self.made))

    @property
    def behind(self) -> Any:
        """The byte behind that."""
        return self._behind(self.made)


@pytest.fixture
def buffer() -> Buffer:
    return Buffer()


def test_pieces_of_any_size_are_joined_with_a_nul_behind_them(buffer: Buffer) -> None:
    pieces = [b"a" * 2047, b"b", b"", b"c" * 5000]
    for count in range(1, len(pieces) + 1):
        buffer.append(pieces[count - 1])
        assert (buffer.text, buffer.behind) == (b"".join(pieces[:count]), 0)


def test_a_cleared_one_is_empty_and_can_be_used_again(buffer: Buffer) -> None:
    for size in (10, 100_000, 10):
        buffer.append(b"x" * size)
        assert len(buffer.text) == size
        buffer.clear()
        assert buffer.made.size == 0


def test_beyond_its_limit_it_holds_nothing_and_says_so_until_it_is_cleared(buffer: Buffer) -> None:
    limit = int(buffer.module.LIMIT)
    buffer.append(b"x" * limit)
    assert not buffer.made.overflowed
    buffer.append(b"x")
    assert (buffer.made.overflowed, buffer.made.size) == (True, 0)
    buffer.append(b"y")
    assert buffer.made.size == 0
    buffer.clear()
    buffer.append(b"z")
    assert (buffer.made.overflowed, buffer.text) == (False, b"z")
