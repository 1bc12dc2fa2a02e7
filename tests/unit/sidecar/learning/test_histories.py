"""`sidecar/learning/histories.py`."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.learning.histories import FEWEST, KEPT, PUBLISHED, SeenHistories
from tokenweir.contract.records import Completion


def record(value: float | None = 5.0, **members: Any) -> Completion:
    facts = {"id": "1", "gateway": "g", "time_ms": 1, "model": "m", "backend": "b", "kind": "chat"}
    return Completion.model_validate(facts | {"outcome": "ok", "learned": value} | members)


def test_a_key_and_a_system_prompt_have_a_row_each() -> None:
    seen = SeenHistories()
    for _ in range(FEWEST):
        seen.add(record(key_number=7, system_number=9))
    rows = seen.published().rows
    assert {(row.of, row.number) for row in rows} == {("key", 7), ("system", 9)}
    assert all(row.mean == 5.0 and row.variance == 0 for row in rows)


def test_what_came_once_or_twice_is_not_told() -> None:
    seen = SeenHistories()
    for _ in range(FEWEST - 1):
        seen.add(record(key_number=7))
    assert seen.published().rows == []


def test_records_without_features_tell_nothing() -> None:
    seen = SeenHistories()
    seen.add(record(None, key_number=7))
    seen.add(record(5.0))
    assert len(seen) == 0
    assert not seen.changed


def test_newer_outputs_weigh_more() -> None:
    seen = SeenHistories()
    for value in [2.0] * 300 + [6.0] * 300:
        seen.add(record(value, key_number=7))
    assert seen.published().rows[0].mean == pytest.approx(6.0, abs=0.3)


def test_those_used_longest_ago_are_forgotten_first() -> None:
    seen = SeenHistories()
    for number in range(1, KEPT + 2):
        for _ in range(FEWEST):
            seen.add(record(key_number=number))
    assert len(seen) == KEPT
    rows = seen.published().rows
    assert len(rows) == PUBLISHED
    assert rows[-1].number == KEPT + 1


def test_another_sidecar_goes_on_from_what_was_published() -> None:
    seen, other = SeenHistories(), SeenHistories()
    for value in (2.0, 3.0, 4.0):
        seen.add(record(value, key_number=2**52))
    other.restore(seen.published().dump())
    assert other.published().rows == seen.published().rows


def test_who_leads_again_goes_on_from_what_the_one_between_has_published() -> None:
    seen, other = SeenHistories(), SeenHistories()
    for _ in range(FEWEST):
        seen.add(record(2.0, key_number=7))
    other.restore(seen.published().dump())
    for _ in range(300):
        other.add(record(6.0, key_number=7))
    seen.restore(other.published().dump())
    assert seen.published().rows == other.published().rows


def test_who_has_published_last_keeps_what_it_saw_since() -> None:
    seen = SeenHistories()
    for _ in range(FEWEST):
        seen.add(record(2.0, key_number=7))
    published = seen.published().dump()
    seen.add(record(4.0, key_number=7))
    seen.restore(published)
    assert seen.published().rows[0].count == FEWEST + 1


@pytest.mark.parametrize("text", ["", "[]", '{"rows": [{"of": "key"}]}', '{"rows": 3}'])
def test_a_damaged_document_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="validation error"):
        SeenHistories().restore(text)


def test_a_value_that_is_no_logarithm_of_tokens_makes_no_record() -> None:
    for value in (float("nan"), float("inf"), -1.0, 99.0):
        with pytest.raises(ValueError, match="learned"):
            record(value, key_number=7)
