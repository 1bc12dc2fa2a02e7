"""`lua/tokenweir/stream_entry.lua`: entries of a Redis stream as XRANGE answers with them."""

from __future__ import annotations

from typing import Any

import pytest

from tokenweir.luavm import new_runtime

lua: Any = new_runtime()
entry: Any = lua.eval(b'require "tokenweir.stream_entry"')


def test_a_field_is_found_by_its_name_wherever_it_stands() -> None:
    fields = lua.table_from([b"gateway", b"gw-1", b"hashes", b"gateway"])
    assert entry.field(fields, b"gateway") == b"gw-1"
    assert entry.field(fields, b"hashes") == b"gateway"
    assert entry.field(fields, b"gw-1") is None, "a value is no name"
    assert entry.field(lua.table_from([b"odd"]), b"odd") is None


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
