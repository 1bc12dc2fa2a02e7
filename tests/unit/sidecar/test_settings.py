"""The settings document."""

from __future__ import annotations

import pytest

from sidecar import settings
from tokenweir.config import ConfigError
from tokenweir.config.loading import parse
from tokenweir.config.models import hash_key

YAML = """
backends: [http://10.0.0.1:8000, http://10.0.0.2:8000]
models: [{name: llama, aliases: [gpt-4], output_prior: 200}]
keys: [{id: team, key_file: team.key, models: [llama], tokens_per_minute: 1000, deadline: 30s}]
paths: {/v1/audio/: whisper}
limits: {deadline: 0s, idle: 1m, tries: 2}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "team.key").write_text("client-key\n")
    return tmp_path


def test_settings_carry_the_configuration_in_ms_and_no_key_in_clear(folder):
    document = settings.build(parse(YAML, "test"), folder)
    assert document.keys[0].sha256 == hash_key("client-key")
    assert "client-key" not in document.dump()
    assert (document.keys[0].deadline_ms, document.limits.deadline_ms, document.limits.idle_ms) == (
        30_000,
        None,
        60_000,
    )
    assert (document.models[0].aliases, document.require_key) == (["gpt-4"], True)
    assert document.paths == {"/v1/audio/": "whisper"}


def test_a_key_file_of_a_client_that_cannot_be_used_is_named(folder):
    (folder / "team.key").unlink()
    with pytest.raises(ConfigError, match=r"`keys: team: key_file`.*No such file"):
        settings.build(parse(YAML, "test"), folder)
