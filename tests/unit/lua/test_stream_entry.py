"""`lua/tokenweir/stream_entry.lua`: entries of a Redis stream as XRANGE answers with them."""

from __future__ import annotations

from typing import Any

import pytest

from tokenweir.luavm import new_runtime

lua: Any = new_runtime()
entry: Any = lua.eval(b'require "tokenweir.stream_entry"')


def read(entry_id: bytes, fields: list[bytes] | None, name: bytes) -> Any:
    """(value, when it was written) of a field, or None."""
    return entry.read(lua.table_from([entry_id, lua.table_from(fields) if fields else 0]), name)


def test_a_field_is_found_by_its_name_wherever_it_stands_with_the_time_of_its_entry() -> None:
    fields = [b"gateway", b"gw-1", b"hashes", b"gateway"]
    assert read(b"1764523951000-3", fields, b"gateway") == (b"gw-1", 1764523951000)
    assert read(b"1764523951000-3", fields, b"hashes") == (b"gateway", 1764523951000)


def test_an_entry_that_lacks_the_field_or_has_no_id_of_a_stream_tells_nothing() -> None:
    assert read(b"1-1", [b"gateway", b"gw-1"], b"gw-1") is None, "a value is no name"
    assert read(b"1-1", [b"odd"], b"odd") is None
    assert read(b"1-1", None, b"gateway") is None
    assert read(b"nonsense", [b"gateway", b"gw-1"], b"gateway") is None


@pytest.mark.parametrize(
    ("given", "next_id"),
    [
        (b"1764523951000-0", b"1764523951000-1"),
        (b"0-9007199254740990", b"0-9007199254740991"),
        (b"nonsense", None),
        (b"1-2-3", None),
    ],
)
def test_the_id_behind_an_entry_is_where_the_next_read_begins(given: bytes, next_id: bytes | None) -> None:
    assert entry.following(given) == next_id
