"""The Lua half of the contract, run from Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tokenweir.luavm import new_runtime

Check = Callable[[str, str], tuple[bool, str]]


def to_lua(runtime: Any, value: Any) -> Any:
    """A decoded JSON value as Lua tables; null becomes nil."""
    if isinstance(value, dict):
        return runtime.table_from({key.encode(): to_lua(runtime, item) for key, item in value.items()})
    if isinstance(value, list):
        return runtime.table_from([to_lua(runtime, item) for item in value])
    return value.encode() if isinstance(value, str) else value


@pytest.fixture
def lua_check() -> Check:
    """`core/documents/check.lua`: (document name, JSON text) -> (accepted, what is wrong)."""
    runtime = new_runtime()
    document = runtime.eval(b'require "tokenweir.core.documents.check".document')

    def check(name: str, text: str) -> tuple[bool, str]:
        answer = document(to_lua(runtime, json.loads(text)), name.encode())
        ok, err = answer if isinstance(answer, tuple) else (answer, None)
        return bool(ok), (err or b"").decode()

    return check
