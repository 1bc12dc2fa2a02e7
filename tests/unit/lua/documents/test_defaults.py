"""`core/documents/defaults.lua`: absent and null members get the contract's defaults."""

from __future__ import annotations

from typing import Any

import pytest

from tokenweir.contract.records import HealthSettings, Settings
from tokenweir.luavm import new_runtime


@pytest.fixture(scope="module")
def lua() -> Any:
    return new_runtime()


def to_python(value: Any) -> Any:
    """A Lua table as dict (or list where its keys count from 1)."""
    if not hasattr(value, "items"):
        return value.decode() if isinstance(value, bytes) else value
    items = {to_python(key): to_python(item) for key, item in value.items()}
    if items and set(items) == set(range(1, len(items) + 1)):
        return [items[key] for key in sorted(items)]
    return items


def test_empty_settings_get_what_python_would_give_them(lua: Any) -> None:
    fill = lua.require(b"tokenweir.core.documents.defaults").fill
    filled = to_python(fill(lua.eval(b"{ schema = 1 }"), b"settings"))
    wanted = Settings().model_dump(by_alias=True, exclude_none=True)
    wanted["limits"].pop("deadline_ms", None)
    assert filled == {name: value if value != [] else {} for name, value in wanted.items()}


def test_what_is_there_is_kept_and_nulls_are_dropped(lua: Any) -> None:
    fill = lua.require(b"tokenweir.core.documents.defaults").fill
    null = lua.eval(b"require('ffi').cast('void *', 0)")
    document = lua.eval(b"function(null) return { limits = { tries = 7, deadline_ms = null } } end")(null)
    limits = to_python(fill(document, b"settings"))["limits"]
    assert limits["tries"] == 7
    assert "deadline_ms" not in limits
    assert limits["idle_ms"] == 600_000


def test_members_of_lists_and_maps_are_filled(lua: Any) -> None:
    fill = lua.require(b"tokenweir.core.documents.defaults").fill
    stats = to_python(
        fill(lua.eval(b"{ models = { llama = { mean = 5, median = 4, spread = 1 } } }"), b"stats")
    )
    assert stats["models"]["llama"]["tokens_per_byte"] == 0.25
    settings = to_python(fill(lua.eval(b"{ keys = { { id = 'a' } } }"), b"settings"))
    assert settings["keys"][0]["max_priority"] == "high"


def test_a_member_can_be_left_alone(lua: Any) -> None:
    fill = lua.require(b"tokenweir.core.documents.defaults").fill
    document = to_python(fill(lua.eval(b"{ backends = { { id = 'a' } } }"), b"snapshot", b"backends"))
    assert document["backends"] == [{"id": "a"}]
    assert document["thresholds"]["kv_cap"] == 0.9


def test_a_part_s_defaults_are_those_of_the_contract(lua: Any) -> None:
    of = lua.require(b"tokenweir.core.documents.defaults").of
    assert to_python(of(b"settings", b"health")) == HealthSettings().model_dump()
    assert to_python(of(b"stats", b"models")) == {
        "count": 0,
        "tokens_per_byte": 0.25,
        "tokens_per_event": 1,
    }
