"""Pointers to the bytes of Python's strings, for modules that read those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_POINT = b"""
local of = require("tokenweir.core.bytes").of
local kept
return function(text)
  kept = text
  return of(kept)
end
"""


def points_in(execute: Callable[[bytes], Any]) -> Any:
    """A function of a string: its bytes in the runtime of `execute`, which stay until its next call.

    Lua collects a string that nothing refers to, whatever points to it.
    """
    return execute(_POINT)
