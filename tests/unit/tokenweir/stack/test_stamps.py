"""What makes `up` renew a part: every file that it reads at its start, by content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tokenweir.stack import gateway_server, sidecar_server, state_dir
from tokenweir.stack.part import Part, contents_stamp
from tokenweir.stack.settings import Settings, read

YAML = """
backends: [http://127.0.0.1:9]
listen: {tls: {certificate: server.pem, key: server.key}}
admin: {token_file: token}
keys: [{id: team, key_file: team.key}]
redis: {host: 127.0.0.1, gateway_password_file: gateway, sidecar_password_file: sidecar}
"""
FILES = ("server.pem", "server.key", "token", "team.key", "gateway", "sidecar")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(state_dir, "_closed_ancestor", lambda path: None)
    monkeypatch.setattr("tokenweir.render.paths.reachable", lambda _: True)
    monkeypatch.setattr(gateway_server, "check_rendered", lambda *_: None)
    for name in FILES:
        (tmp_path / name).write_text(f"of-{name}-before")
    (tmp_path / "tokenweir.yaml").write_text(YAML)
    made = read(tmp_path / "tokenweir.yaml")
    made.state.create()
    return made


@pytest.mark.parametrize(
    ("part", "files"),
    [
        (gateway_server.part, {"server.pem", "server.key", "gateway"}),
        (sidecar_server.part, {"token", "team.key", "sidecar"}),
    ],
)
def test_a_part_is_renewed_when_a_secret_that_it_reads_changes_and_only_then(
    settings: Settings, part: Callable[[Settings], Part], files: set[str]
) -> None:
    assert part(settings).digest == part(settings).digest
    for name in FILES:
        before = part(settings).digest
        (settings.path.parent / name).write_text(f"of-{name}-after")
        assert (part(settings).digest != before) == (name in files), name


def test_the_sidecar_is_renewed_when_its_packages_change(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_server, "ROOT", tmp_path)
    (tmp_path / "requirements.lock").write_text("redis==1\n")
    before = sidecar_server.part(settings).digest
    (tmp_path / "requirements.lock").write_text("redis==2\n")
    assert sidecar_server.part(settings).digest != before


def test_a_file_that_moves_its_content_into_the_next_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("xy")
    (tmp_path / "b").write_text("")
    before = contents_stamp(tmp_path, "a", "b", None)
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").write_text("y")
    assert contents_stamp(tmp_path, "a", "b", None) != before
