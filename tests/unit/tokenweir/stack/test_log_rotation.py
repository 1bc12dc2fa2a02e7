"""Logs stay bounded, and a writer that appends goes on."""

from __future__ import annotations

from pathlib import Path

from tokenweir.stack.log_rotation import rotate


def test_a_log_over_the_limit_is_kept_once_and_emptied(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    log.write_text("x" * 101)
    rotate(tmp_path, max_bytes=100)
    assert log.read_text() == ""
    assert (tmp_path / "gateway.log.1").read_text() == "x" * 101


def test_a_writer_that_appends_goes_on_at_the_new_end(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    with log.open("a") as writer:
        writer.write("x" * 101)
        writer.flush()
        rotate(tmp_path, max_bytes=100)
        writer.write("after")
    assert log.read_text() == "after"


def test_a_log_under_the_limit_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "gateway.log").write_text("x" * 100)
    rotate(tmp_path, max_bytes=100)
    assert [path.name for path in tmp_path.iterdir()] == ["gateway.log"]
