"""What `up` adds to the user's configuration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokenweir.stack import state_dir
from tokenweir.stack.settings import read

SHORTEST = "backends: [http://127.0.0.1:9]\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state_dir, "_closed_ancestor", lambda path: None)

    def put(text: str) -> Path:
        path = tmp_path / "tokenweir.yaml"
        path.write_text(text)
        return path

    return put


def test_a_redis_of_its_own_gets_a_port_away_from_the_systems_and_two_users(write) -> None:
    settings = read(write(SHORTEST))
    redis = settings.config.redis
    assert settings.own_redis
    assert (redis.port, redis.gateway_user, redis.sidecar_user) == (16379, "gateway", "sidecar")
    assert redis.gateway_password_file != redis.sidecar_password_file


def test_the_port_of_its_own_redis_can_be_set(write) -> None:
    settings = read(write(SHORTEST + "redis: {port: 7000}\n"))
    assert settings.own_redis
    assert settings.config.redis.port == 7000


@pytest.mark.parametrize("redis", ["{host: redis.example}", "{host: 127.0.0.1}", "{gateway_user: gw}"])
def test_a_redis_that_the_configuration_points_to_is_used_as_it_is(write, redis: str) -> None:
    settings = read(write(SHORTEST + f"redis: {redis}\n"))
    assert not settings.own_redis
    assert settings.config.redis.port == 6379
    assert settings.config.redis.gateway_password_file is None


def test_the_state_is_beside_the_configuration(write) -> None:
    path = write(SHORTEST)
    assert read(path).state.root == path.parent / "var"


def test_as_root_the_state_leaves_a_folder_that_is_closed_to_other_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "tokenweir.yaml").write_text(SHORTEST)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    first = read(closed / "tokenweir.yaml").state
    assert first.root.parent == Path("/var/lib/tokenweir")
    assert "closed to other users" in first.moved
    assert read(closed / "tokenweir.yaml").state == first


def test_a_user_who_is_not_root_keeps_the_state_in_a_closed_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "tokenweir.yaml").write_text(SHORTEST)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert read(closed / "tokenweir.yaml").state.root == closed / "var"


def test_secrets_are_for_their_owner_alone(write) -> None:
    from tokenweir.stack.credentials import ensure_secret

    state = read(write(SHORTEST)).state
    state.create()
    secret = ensure_secret(state.secrets / "redis-gateway")
    assert state.secrets.stat().st_mode & 0o777 == 0o700
    assert (state.secrets / "redis-gateway").stat().st_mode & 0o777 == 0o600
    assert ensure_secret(state.secrets / "redis-gateway") == secret
