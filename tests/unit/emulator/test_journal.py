"""What an emulated server notes of its executions."""

from __future__ import annotations

from pathlib import Path

from emulator.journal import Journal


def test_an_id_is_counted_every_time_that_it_is_executed():
    journal = Journal()
    for request_id in ("a", "b", "a", ""):
        journal.executed(request_id)
    assert journal.report()["total"] == 4
    assert journal.report()["requests"] == {"a": 2, "b": 1}


def test_a_file_gets_every_id_at_once_and_outlives_the_journal(tmp_path: Path):
    path = tmp_path / "journal"
    Journal(path).executed("a")
    again = Journal(path)
    again.executed("b")
    again.executed("")
    assert path.read_text() == "a\nb\n"
    again.clear()
    assert path.read_text() == "a\nb\n"
