"""One reader of bodies for all tests of a module."""

from __future__ import annotations

import pytest

from tests.unit.lua.body.parsers import Parser


@pytest.fixture(scope="module")
def parser() -> Parser:
    return Parser()
