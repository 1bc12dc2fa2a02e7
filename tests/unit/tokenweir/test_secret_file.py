"""Files that hold one secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenweir.config import ConfigError
from tokenweir.secret_file import read_secret


def test_the_secret_is_read_without_the_line_s_end(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("sk-1\n")
    assert read_secret(path, "k") == "sk-1"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"", "empty"),
        (b"two words", "alone"),
        (b"sk\r\nX-Admin: 1", "alone"),
        (b"a\x00b", "alone"),
        (b"\xff\xfe", "not a text file"),
    ],
)
def test_what_is_no_secret_is_refused_by_name_and_not_shown(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=said) as caught:
        read_secret(path, "redis: sidecar_password_file")
    assert "`redis: sidecar_password_file`" in str(caught.value)
    assert "words" not in str(caught.value)
