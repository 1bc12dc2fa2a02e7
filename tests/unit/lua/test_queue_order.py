"""`lua/tokenweir/core/queue_order.lua`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime

RUNTIME = new_runtime()
ORDER = RUNTIME.eval(b'require "tokenweir.core.queue_order"')


@pytest.fixture
def order(require: Callable[[str], Any]) -> Any:
    return require("tokenweir.core.queue_order")


def test_the_earliest_ticket_is_the_head(order: Any) -> None:
    line = order.new()
    assert order.head(line) == 0
    for ticket in (3, 7, 9):
        order.push(line, ticket)
    assert order.head(line) == 3


def test_who_leaves_in_the_middle_is_gone_at_once(order: Any) -> None:
    line = order.new()
    for ticket in (3, 7, 9):
        order.push(line, ticket)
    assert order.remove(line, 7) is True
    assert order.remove(line, 7) is False
    assert order.head(line) == 3
    order.remove(line, 3)
    assert order.head(line) == 9


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(0, 2)), st.tuples(st.just("leave"), st.integers(0, 50))
        )
    )
)
def test_requests_go_in_the_order_they_came_whoever_leaves(steps: list[tuple[str, int]]) -> None:
    lines = [ORDER.new() for _ in range(3)]
    waiting: list[tuple[int, int]] = []
    ticket = 0
    for what, number in steps:
        if what == "push":
            ticket += 1
            ORDER.push(lines[number], ticket)
            waiting.append((ticket, number))
        elif waiting:
            gone, line = waiting.pop(number % len(waiting))
            assert ORDER.remove(lines[line], gone) is True
    for line in range(3):
        own = [ticket for ticket, at in waiting if at == line]
        assert lines[line].size == len(own)
    served = []
    while any(line.size for line in lines):
        line = min((line for line in lines if line.size), key=ORDER.head)
        served.append(ORDER.head(line))
        ORDER.remove(line, served[-1])
    assert served == [ticket for ticket, _ in waiting]
