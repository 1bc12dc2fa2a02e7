"""The sidecar's limit of open files."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from sidecar.open_files import raise_limit


@pytest.fixture
def low() -> Iterator[int]:
    """A low limit of this process, for a moment; its hard limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_it_is_raised_as_far_as_the_system_lets_it(low):
    assert raise_limit(600) == 600
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (600, low)


def test_it_is_never_lowered(low):
    assert raise_limit(100) == 512
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (512, low)
