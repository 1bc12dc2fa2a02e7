"""What benches count with."""

from emulator import journal
from emulator.journal import Journal


def test_a_request_executed_twice_is_seen() -> None:
    book = Journal()
    for request_id in ("a", "b", "a", ""):
        book.executed(request_id)
    report = book.report()
    assert (report["total"], report["requests"]) == (4, {"a": 2, "b": 1})


def test_aborts_are_kept_in_order() -> None:
    book = Journal()
    book.aborted("a", 5)
    book.aborted("b", 0)
    assert [(abort["request_id"], abort["tokens"]) for abort in book.report()["aborted"]] == [
        ("a", 5),
        ("b", 0),
    ]


def test_it_forgets_the_oldest_but_not_the_totals() -> None:
    book = Journal()
    for i in range(journal.LONGEST + 2):
        book.executed(str(i))
    report = book.report()
    assert report["total"] == journal.LONGEST + 2
    assert "0" not in report["requests"] and str(journal.LONGEST + 1) in report["requests"]
