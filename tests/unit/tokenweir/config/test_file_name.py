"""`tokenweir/config/file_name.py`: files that the configuration names."""

from __future__ import annotations

import pytest

from tokenweir.config.errors import ConfigError
from tokenweir.config.loading import parse

BACKEND = "backends: [{url: 'http://10.0.0.11:8000', api_key_file: '%s'}]"


def api_key_file(name: str) -> str | None:
    return parse(BACKEND % name, "tokenweir.yaml").backends[0].api_key_file


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ops")
    assert api_key_file("~/keys/gpu-b") == "/home/ops/keys/gpu-b"
    assert api_key_file("~root/gpu-b") == "/root/gpu-b"


@pytest.mark.parametrize("name", ["secrets/gpu-b", "/etc/keys/gpu-b", "keys/~gpu-b", "./~gpu-b"])
def test_any_other_name_stays_as_it_is(name: str) -> None:
    assert api_key_file(name) == name


def test_a_user_without_a_home_folder_is_told() -> None:
    with pytest.raises(ConfigError) as told:
        api_key_file("~no-such-user/gpu-b")
    assert "`backends[0].api_key_file`: no home folder of `~no-such-user` is known" in str(told.value)


@pytest.mark.parametrize(
    "text",
    [
        "state_dir: ~/tokenweir",
        "admin: {token_file: ~/token}",
        "admin: {files_dir: ~/secrets}",
        "listen: {tls: {certificate: ~/cert.pem, key: ~/key.pem}}",
        "redis: {ca: ~/ca.pem, gateway_password_file: ~/g, sidecar_password_file: ~/s}",
        "keys: [{id: a, key_file: ~/a}]",
    ],
)
def test_every_key_that_names_a_file_takes_a_tilde(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ops")
    config = parse(f"backends: ['http://10.0.0.11:8000']\n{text}", "tokenweir.yaml")
    assert "~" not in config.model_dump_json(exclude_none=True)
