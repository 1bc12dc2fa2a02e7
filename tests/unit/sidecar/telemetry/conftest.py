"""Pages of the engines' metrics in their documented formats, under `pages/`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.telemetry.exposition import Page

PAGES = Path(__file__).parent / "pages"


@pytest.fixture
def page() -> Callable[[str], Page]:
    """A page by its name."""
    return lambda name: Page((PAGES / f"{name}.txt").read_bytes())
