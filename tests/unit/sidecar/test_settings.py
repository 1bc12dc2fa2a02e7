"""The settings document and the backends' keys."""

from __future__ import annotations

import json

import pytest

from sidecar import settings
from tokenweir.config import ConfigError
from tokenweir.config.loading import parse
from tokenweir.config.models import hash_key

YAML = """
backends: [{id: a, url: http://10.0.0.1:8000, api_key_file: a.key}, http://10.0.0.2:8000]
models: [{name: llama, aliases: [gpt-4], output_prior: 200}]
keys: [{id: team, key_file: team.key, models: [llama], tokens_per_minute: 1000, deadline: 30s}]
limits: {deadline: 0s, idle: 1m, tries: 2}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.key").write_text("engine-key\n")
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


def test_backend_keys_go_into_a_file_for_the_owner_alone(folder):
    keys = settings.backend_keys(parse(YAML, "test").backends, folder)
    settings.write_backend_keys(keys, folder / "var")
    path = folder / "var" / settings.KEYS_FILE
    assert json.loads(path.read_text()) == {"a": "engine-key"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_became_readable_is_closed_again(folder):
    settings.write_backend_keys({}, folder)
    path = folder / settings.KEYS_FILE
    path.chmod(0o644)
    settings.write_backend_keys({}, folder)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), ("", "empty"), ("two words", "alone"), ("a\x00b", "alone")]
)
def test_a_key_file_that_cannot_be_used_is_named(folder, content, said):
    if content is None:
        (folder / "a.key").unlink()
    else:
        (folder / "a.key").write_text(content)
    with pytest.raises(ConfigError, match=said) as caught:
        settings.backend_keys(parse(YAML, "test").backends, folder)
    assert "api_key_file" in str(caught.value)
