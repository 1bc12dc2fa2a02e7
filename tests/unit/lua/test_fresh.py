"""`lua/tokenweir/core/fresh.lua`."""

from __future__ import annotations

from typing import Any

import pytest


def test_it_loads_another_copy_of_a_module(lua: Any) -> None:
    apart = lua.execute(b"""
        local fresh = require "tokenweir.core.fresh"
        local shared, own = require "tokenweir.core.json.walk", fresh.load "tokenweir.core.json.walk"
        return shared ~= own and shared.walk ~= own.walk and require "tokenweir.core.json.walk" == shared
    """)
    assert apart is True


def test_a_module_that_does_not_exist_is_named(lua: Any) -> None:
    with pytest.raises(Exception, match=r"module 'tokenweir\.core\.absent' not found"):
        lua.execute(b'require("tokenweir.core.fresh").load("tokenweir.core.absent")')
