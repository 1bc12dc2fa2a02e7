"""Where a key of the configuration may stand."""

from __future__ import annotations

from tokenweir.config.backends import BackendConfig, BackendTls
from tokenweir.config.models import Config
from tokenweir.config.places import locate, sections


def test_a_place_in_a_list_is_found_with_its_section() -> None:
    assert locate(Config, ("backends", 0)) == (["backends", 0], [BackendConfig])
    assert locate(Config, ("backends", 2, "tls")) == (["backends", 2, "tls"], [BackendTls])


def test_the_names_of_alternatives_that_nobody_wrote_are_left_out() -> None:
    assert locate(Config, ("listen", "workers", "int")) == (["listen", "workers"], [])
    assert locate(Config, ("paths", "/v1/audio/", "[key]")) == (["paths", "/v1/audio/"], [])


def test_every_section_is_listed_with_its_path() -> None:
    found = {path: section.__name__ for path, section in sections(Config)}
    assert found[""] == "Config"
    assert found["backends[]"] == "BackendConfig"
    assert found["backends[].actuator.docker"] == "DockerConfig"
    assert found["queue.high"] == "HighClassConfig"
