"""Fixtures of the readers of answers."""

from __future__ import annotations

import pytest

from tests.unit.lua.answer.streams import Counter


@pytest.fixture(scope="module")
def counter() -> Counter:
    return Counter()
