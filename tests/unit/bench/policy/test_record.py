"""`bench/policy/record.py`: what was recorded stays until it is run again."""

from __future__ import annotations

from math import inf
from typing import Any

from bench.policy import record


def case(good: float | None, **what: Any) -> dict[str, Any]:
    """A case with one figure."""
    return {"case": what, "good_share": good, "p99_s_seeds": [1.0, good]}


def test_a_case_that_is_run_again_replaces_the_one_before() -> None:
    before = [case(0.5, cell="a", policy="x", rate=9), case(0.6, cell="b", policy="x", rate=9)]
    after = [case(0.7, cell="a", policy="x", rate=10), case(0.8, cell="a", policy="y", rate=10)]
    found = record.merged(before, after)
    assert [(c["case"]["cell"], c["case"]["policy"], c["good_share"]) for c in found] == [
        ("a", "x", 0.7),
        ("b", "x", 0.6),
        ("a", "y", 0.8),
    ]


def test_the_articles_table_has_a_case_for_each_capacity_and_load() -> None:
    rows = [
        case(1.0, table="article", policy="x", capacity=capacity, loop="closed", clients=clients)
        for capacity in (1, 2)
        for clients in (8, 16)
    ]
    assert len(record.merged(rows, [case(1.0, table="article", policy="x", capacity=1, loop="open")])) == 5


def test_what_was_recorded_with_another_size_is_to_be_run_again() -> None:
    cases = [case(1.0, cell="a", policy="x", requests=100, seeds=[1, 2])]
    assert record.has(cases, {"cell": "a", "policy": "x", "requests": 100, "seeds": [1, 2]})
    assert not record.has(cases, {"cell": "a", "policy": "x", "requests": 200, "seeds": [1, 2]})
    assert not record.has(cases, {"cell": "a", "policy": "x", "requests": 100, "seeds": [3]})


def test_figures_without_an_end_are_read_back_as_such() -> None:
    cells = record.cells_of([case(None, cell="a", policy="x"), case(1.0, cell="a", part="other")])
    assert cells == {"a": {"x": {"good_share": inf, "p99_s_seeds": [1.0, inf]}}}
