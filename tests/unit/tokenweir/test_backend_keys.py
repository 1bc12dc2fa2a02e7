"""The file in which the gateway finds the keys that backends want."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tokenweir import backend_keys


def test_the_file_is_for_its_owner_alone_and_closed_again_where_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "backend-keys.json"
    for _ in range(2):
        backend_keys.write(path, {"a": "sk"})
        assert json.loads(path.read_text()) == {"a": "sk"}
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        path.chmod(0o644)


def test_without_any_key_there_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "backend-keys.json"
    backend_keys.write(path, {})
    assert not path.parent.exists()
    backend_keys.write(path, {"a": "sk"})
    backend_keys.write(path, {})
    assert json.loads(path.read_text()) == {}


def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "backend-keys.json"
    backend_keys.write(path, {"a": "sk"})
    before = path.stat().st_ino
    backend_keys.write(path, {"a": "sk"})
    assert path.stat().st_ino == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_file_belongs_to_whom_the_folder_was_made_for(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "backend-keys.json"
    backend_keys.write(path, {"a": "old"})
    backend_keys.prepare_folder(path, "nobody")
    assert path.owner() == path.parent.owner() == "nobody"
    backend_keys.write(path, {"a": "sk"})
    assert path.owner() == "nobody"
