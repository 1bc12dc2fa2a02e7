"""`lua/tokenweir/core/bytes.lua`."""

from __future__ import annotations

from typing import Any

import pytest

from tokenweir.luavm import new_runtime


@pytest.mark.parametrize("compiled", [False, True])
def test_the_first_of_equal_numbers_is_found_and_absent_ones_are_below_zero(compiled: bool) -> None:
    found: Any = new_runtime().execute(
        b"""
        local compiled = ...
        if not compiled then
          jit.off()
        end
        local ffi = require "ffi"
        local index = require("tokenweir.core.bytes").index
        local set = ffi.new("struct { int32_t before, tag[8], after; }")
        set.before, set.after = 5, 5
        for k = 0, 7 do
          set.tag[k] = k < 4 and k or k - 4
        end
        local absent, present = 0, 0
        -- Wherever the memory lies.
        for turn = 1, 300 do
          local other = ffi.new("int32_t[?]", 8 + turn)
          absent = absent + (index(other, 5, 8) < 0 and 1 or 0) + (index(set.tag, 5, 8) < 0 and 1 or 0)
          present = present + index(set.tag, 3, 8)
        end
        return absent * 10000 + present
    """,
        compiled,
    )
    assert found == 600 * 10000 + 300 * 3
