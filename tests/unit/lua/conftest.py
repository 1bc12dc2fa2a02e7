"""Runs the pure Lua of `lua/tokenweir/core` in LuaJIT, as the gateway does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokenweir.luavm import new_runtime


@pytest.fixture
def lua() -> Any:
    """A fresh LuaJIT runtime that finds `tokenweir.*`; strings are bytes."""
    return new_runtime()


@pytest.fixture
def require(lua: Any) -> Any:
    """Lua's `require` of that runtime, taking a Python string."""

    def load(name: str) -> Any:
        module = lua.eval("require")(name.encode())
        return module[0] if isinstance(module, tuple) else module

    return load


@pytest.fixture
def pointer_to(lua: Any) -> Any:
    """Makes a Lua string and points to its bytes; a pointer alone would not keep it from being collected."""
    return lua.execute(
        b"""
        local of, kept = require("tokenweir.core.bytes").of, {}
        return function(text)
          kept[#kept + 1] = text
          return of(text)
        end
        """
    )


@pytest.fixture
def root_path(root: Path) -> Path:
    """The repository's root, for tests that read sources."""
    return root
