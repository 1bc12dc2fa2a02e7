"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

# Processes of tests that each spin on all cores hold each other up for minutes. Read when OpenMP is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

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
