"""The configurations on the pages of telemetry, actuators, sessions and operations can be used as such."""

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


def test_a_gateway_beside_others_has_a_redis_and_its_two_users():
    (text,) = blocks("docs/operations.md", "yaml", "tested")
    redis = parse(text, "docs/operations.md").redis
    assert redis.host and redis.gateway_user and redis.sidecar_user
    assert redis.gateway_password_file != redis.sidecar_password_file
