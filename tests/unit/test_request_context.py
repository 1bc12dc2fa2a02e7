"""The context of a request has room for all of its members: a table that grows is laid out anew each time."""

from __future__ import annotations

import re
from pathlib import Path

from tokenweir.luavm import new_runtime


def members(root: Path) -> set[str]:
    listed = re.search(
        r"^local MEMBERS = \{$(.*?)^\}$",
        (root / "lua/tokenweir/request_context.lua").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert listed
    return set(re.findall(r'"(\w+)"', listed[1]))


def test_every_member_that_is_named_in_the_sources_is_there_from_the_start(root: Path) -> None:
    names: set[str] = set()
    for path in (root / "lua/tokenweir").rglob("*.lua"):
        if path.name != "nginx_connection.lua":  # nginx's own struct
            names |= set(re.findall(r"(?<!@param )\br\.([a-z_0-9]+)", path.read_text()))
    assert len(names) > 80
    assert names <= members(root)


def test_all_members_fit_a_table_of_128(root: Path) -> None:
    assert len(members(root)) <= 128


def test_no_member_of_a_context_that_is_used_again_is_nil(root: Path) -> None:
    lua = new_runtime()
    context = lua.eval(b'require "tokenweir.request_context"')
    context = context[0] if isinstance(context, tuple) else context
    r = context.take(0)
    context.give(r)
    assert {key.decode() for key in context.take(1)} == members(root)


def test_what_became_of_an_answer_is_forgotten_with_its_request(root: Path) -> None:
    lua = root / "lua/tokenweir"
    give = re.search(
        r"^function _M\.give\(r\)$.*?^end$", (lua / "request_context.lua").read_text(), re.M | re.S
    )
    assert give
    forgotten = {"tried", *re.findall(r"\br\.([a-z_]+)", give[0])}  # `tried` by its count
    for name in ("balancer", "header_filter", "body_filter", "outcome"):
        lines = (lua / f"{name}.lua").read_text().splitlines()
        written = [line.partition(" = ")[0] for line in lines if re.match(r"\s*r\.[a-z_, r.]+ = ", line)]
        assert set(re.findall(r"\br\.([a-z_]+)", " ".join(written))) <= forgotten, name


def test_garbage_is_collected_sooner_while_many_wait() -> None:
    lua = new_runtime()
    context = lua.eval(b'require "tokenweir.request_context"')
    context = context[0] if isinstance(context, tuple) else context

    def pause() -> int:
        """What the collector's pause is: setting it tells what it was."""
        before = int(lua.eval(b'collectgarbage("setpause", 1000)'))
        lua.eval(b'collectgarbage("setpause", %d)' % before)
        return before

    usual = pause()
    waiting = [context.take(0) for _ in range(100)]
    for r in waiting:
        context.put_aside(r)
    assert pause() < usual
    for r in waiting[:30]:
        context.take_up(r)
    assert pause() < usual
    for r in waiting[30:]:
        context.give(r)
    assert pause() == usual
