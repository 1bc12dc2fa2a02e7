"""The record of a request has room for all of its members: a table that grows is laid out anew each time."""

from __future__ import annotations

import re
from pathlib import Path


def test_there_is_room_for_every_member_that_is_named_in_the_sources(root: Path) -> None:
    names: set[str] = set()
    for path in (root / "lua/tokenweir").rglob("*.lua"):
        names |= set(re.findall(r"\br\.([a-z_0-9]+)", path.read_text()))
    room = re.search(
        r"^local MEMBERS = (\d+)$", (root / "lua/tokenweir/record.lua").read_text(), re.MULTILINE
    )
    assert room
    assert len(names) > 80
    assert len(names) <= int(room[1])
