"""The configurations in docs/telemetry.md, docs/actuators.md and docs/sessions.md can be used as they stand
there."""

from __future__ import annotations

import pytest

from tests.documentation import blocks
from tokenweir.config.loading import parse

PAGES = ("docs/telemetry.md", "docs/actuators.md")
EXAMPLES = [(page, number) for page in PAGES for number in range(len(blocks(page, "yaml", "tested")))]


@pytest.mark.parametrize(("page", "number"), EXAMPLES)
def test_an_example_is_a_configuration(page, number):
    config = parse(blocks(page, "yaml", "tested")[number], page)
    assert config.backends
    for backend in config.backends:
        assert backend.actuator or backend.weights or backend.dcgm_url


def test_every_kind_of_actuator_has_an_example():
    configs = [parse(blocks(page, "yaml", "tested")[number], page) for page, number in EXAMPLES]
    kinds = {backend.actuator.kind for config in configs for backend in config.backends if backend.actuator}
    assert kinds == {"docker", "kubernetes", "command", "webhook"}


def test_every_way_to_move_caches_that_needs_something_of_backends_has_an_example():
    configs = [parse(text, "docs/sessions.md") for text in blocks("docs/sessions.md", "yaml", "tested")]
    adapters = {config.sessions.transfer.adapter for config in configs}
    assert adapters == {"lmcache", "agent"}
    assert all(backend.transfer for config in configs for backend in config.backends)
