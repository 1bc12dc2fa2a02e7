"""A LuaJIT runtime in Python that runs the same Lua files as the gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LUA_ROOT = Path(__file__).resolve().parent.parent / "lua"


def new_runtime() -> Any:
    """A fresh LuaJIT 2.1 runtime whose `require` finds `lua/tokenweir`.

    Strings cross as `bytes` in both directions, because request bodies are bytes.
    """
    from lupa.luajit21 import LuaRuntime  # noqa: PLC0415  (the sidecar serves without lupa)

    runtime = LuaRuntime(encoding=None, unpack_returned_tuples=True)
    paths = f"{LUA_ROOT}/?.lua;{LUA_ROOT}/?/init.lua"
    runtime.execute(f'package.path = "{paths}"'.encode())
    return runtime
