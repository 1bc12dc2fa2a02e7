"""A file is written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenweir.atomic_file import write_atomically


def test_a_write_that_fails_leaves_the_old_text_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    write_atomically(path, "old", 0o600)

    def broken(*_: object) -> None:
        raise OSError(5, "I/O error")

    monkeypatch.setattr("tokenweir.atomic_file.os.fsync", broken)
    with pytest.raises(OSError, match="I/O") as failed:
        write_atomically(path, "new", 0o600)
    assert failed.value.filename == str(path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_the_mode_holds_from_the_first_byte_on_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "x"
    write_atomically(path, "text", 0o600)
    assert path.stat().st_mode & 0o777 == 0o600
