"""The health of one backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def health(require: Callable[[str], Any]) -> Any:
    return require("tokenweir.core.backend.health")


@pytest.fixture
def h(health: Any) -> Iterator[Any]:
    rows = health.new(1)  # kept here: an element does not keep its array alive
    yield rows[0]
    del rows
