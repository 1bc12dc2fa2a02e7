"""`lua/tokenweir/core/backend/engine.lua`: what kinds of inference servers do."""

from __future__ import annotations

from typing import Any, get_args

from tokenweir.config.backends import Engine
from tokenweir.luavm import new_runtime

engine: Any = new_runtime().eval(b'require "tokenweir.core.backend.engine"')


def test_every_kind_that_can_be_configured_is_known() -> None:
    assert {kind.decode() for kind in engine.KINDS} == set(get_args(Engine)) - {"auto"}


def test_every_kind_says_each_thing_of_itself() -> None:
    members = [set(traits) for traits in (*engine.KINDS.values(), engine.traits(b""))]
    assert all(names == members[0] for names in members)


def test_of_an_unknown_one_nothing_is_taken_for_granted() -> None:
    for name in (b"", b"vllm-next"):
        traits = engine.traits(name)
        assert not (traits.preempts or traits.stops or traits.closes or traits.answers)
