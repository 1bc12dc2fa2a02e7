"""Fixtures that all tests share."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

# How long an example takes says nothing on a busy machine.
hypothesis.settings.register_profile("tokenweir", deadline=None)
hypothesis.settings.load_profile("tokenweir")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT
