"""`lua/tokenweir/core/backend/load.lua`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime

RUNTIME = new_runtime()
LOAD = RUNTIME.eval(b'require "tokenweir.core.backend.load"')
TOTALS = ("n", "held", "remaining", "variance", "prefill", "flowing")


def request_of(runtime: Any, **members: Any) -> Any:
    """A request record; what is not given is an ordinary chat."""
    values = {"n": 1, "prompt": 100, "mean": 200.0, "sd": 150.0} | members
    return runtime.table_from({name.encode(): value for name, value in values.items()})


def figures(row: Any) -> dict[str, Any]:
    """All figures of a row."""
    buckets = {
        name: [getattr(row, name)[b] for b in range(13)]
        for name in ("bucket_n", "bucket_held", "bucket_variance")
    }
    return {name: getattr(row, name) for name in TOTALS} | buckets


def is_zero(row: Any) -> bool:
    """Whether every figure is exactly zero."""
    values = figures(row)
    return all(values[name] == 0 for name in TOTALS) and all(
        not any(values[name]) for name in values if name.startswith("bucket")
    )


@pytest.fixture
def load(require: Callable[[str], Any]) -> Any:
    return require("tokenweir.core.backend.load")


@pytest.fixture
def row(load: Any) -> Iterator[Any]:
    rows = load.new(1)  # kept here: a row does not keep its array alive
    yield rows[0]
    del rows


def test_the_struct_is_48_doubles(load: Any) -> None:
    assert load.SIZE == 48 * 8


def test_what_a_backend_was_brought_of_a_prompt_it_need_not_compute(lua: Any, load: Any, row: Any) -> None:
    r = request_of(lua, prompt=100, reckoned=10)
    load.reserve(row, r)
    load.brought(row, r, 80)
    assert row.prefill == 20
    load.brought(row, r, 30)
    assert row.prefill == 20
    load.release(row, r)
    assert is_zero(row)
    load.brought(row, r, 90)
    assert is_zero(row)


def test_a_reservation_counts_prompt_and_mean_in_whole_tokens(lua: Any, load: Any, row: Any) -> None:
    load.reserve(row, request_of(lua, prompt=100.2, mean=199.5, sd=150))
    assert (row.n, row.held, row.remaining, row.prefill, row.flowing) == (1, 101, 200, 101, 0)
    assert row.variance == 150**2


def test_n_choices_are_n_sequences_over_one_prompt(lua: Any, load: Any, row: Any) -> None:
    load.reserve(row, request_of(lua, n=3, prompt=100, mean=200, sd=10))
    assert (row.n, row.held, row.remaining, row.variance) == (3, 100, 600, 900)
    assert row.bucket_n[5] == 3  # 200 remaining tokens each: up to 256


def test_the_mean_never_exceeds_what_the_request_may_produce(lua: Any, load: Any, row: Any) -> None:
    load.reserve(row, request_of(lua, mean=500, max_tokens=20))
    assert row.remaining == 20


def test_the_first_token_ends_the_prefill_and_starts_the_flow_once(lua: Any, load: Any, row: Any) -> None:
    r = request_of(lua)
    load.reserve(row, r)
    load.first_token(row, r)
    load.first_token(row, r)
    assert (row.prefill, row.flowing) == (0, 1)


def test_a_request_that_does_not_stream_leaves_the_prefill_without_flowing(
    lua: Any, load: Any, row: Any
) -> None:
    r = request_of(lua)
    load.reserve(row, r)
    load.prefilled(row, r)
    assert (row.prefill, row.flowing) == (0, 0)


def test_progress_moves_tokens_from_remaining_to_held(lua: Any, load: Any, row: Any) -> None:
    r = request_of(lua, prompt=100, mean=200)
    load.reserve(row, r)
    load.progress(row, r, 50)
    assert (row.held, row.remaining, row.prefill) == (150, 150, 0)


def test_progress_changes_the_bucket_when_a_power_of_two_is_crossed(lua: Any, load: Any, row: Any) -> None:
    r = request_of(lua, prompt=100, mean=200, sd=7)
    load.reserve(row, r)
    load.progress(row, r, 100)
    assert [row.bucket_n[b] for b in (4, 5)] == [1, 0]
    assert [row.bucket_held[b] for b in (4, 5)] == [200, 0]
    assert [row.bucket_variance[b] for b in (4, 5)] == [49, 0]


def test_a_request_that_outlives_its_prediction_keeps_a_growing_residual(
    lua: Any, load: Any, row: Any
) -> None:
    r = request_of(lua, mean=100)
    load.reserve(row, r)
    residuals = []
    for tokens in (100, 200, 400):
        load.progress(row, r, tokens)
        residuals.append(row.remaining)
    assert residuals[0] > 0
    assert residuals == sorted(residuals)
    assert residuals[2] > residuals[0]


def test_the_residual_never_exceeds_what_the_request_may_still_produce(lua: Any, load: Any, row: Any) -> None:
    r = request_of(lua, mean=100, max_tokens=410)
    load.reserve(row, r)
    load.progress(row, r, 400)
    assert row.remaining == 10
    load.progress(row, r, 500)
    assert row.remaining == 0


def test_fewer_tokens_than_before_are_not_counted_back(lua: Any, load: Any, row: Any) -> None:
    r = request_of(lua, prompt=10)
    load.reserve(row, r)
    load.progress(row, r, 50)
    load.progress(row, r, 20)
    assert row.held == 60


def test_release_is_idempotent(lua: Any, load: Any, row: Any) -> None:
    r = request_of(lua)
    load.reserve(row, r)
    assert load.release(row, r) is True
    assert load.release(row, r) is False
    assert is_zero(row)


def test_a_reserved_request_is_not_added_twice(lua: Any, load: Any, row: Any) -> None:
    r = request_of(lua)
    assert load.reserve(row, r) is True
    assert load.reserve(row, r) is False
    assert row.n == 1


def test_a_released_request_takes_part_in_nothing(lua: Any, load: Any, row: Any) -> None:
    r = request_of(lua)
    load.reserve(row, r)
    load.release(row, r)
    load.first_token(row, r)
    load.prefilled(row, r)
    load.progress(row, r, 10)
    assert is_zero(row)


def test_a_request_can_be_reserved_again_on_another_backend(lua: Any, load: Any) -> None:
    rows, r = load.new(2), request_of(lua)
    load.reserve(rows[1], r)
    load.progress(rows[1], r, 30)
    load.release(rows[1], r)
    load.reserve(rows[2], r)
    assert is_zero(rows[1])
    assert (rows[2].n, rows[2].held, rows[2].remaining) == (1, 100, 200)


def test_rows_add_up(lua: Any, load: Any) -> None:
    rows = load.new(3)
    for k, prompt in ((1, 10), (2, 20)):
        load.reserve(rows[k], request_of(lua, prompt=prompt))
    load.add(rows[3], rows[1])
    load.add_totals(rows[3], rows[2])
    load.add_buckets(rows[3], rows[2])
    assert (rows[3].n, rows[3].held) == (2, 30)
    assert sum(figures(rows[3])["bucket_held"]) == 30


def test_totals_and_buckets_are_kept_apart(lua: Any, load: Any, row: Any) -> None:
    load.reserve(row, request_of(lua))
    empty = load.new(0)
    load.copy_totals(row, empty[0])
    assert row.n == 0
    assert row.bucket_n[5] == 1
    load.clear_buckets(row)
    assert is_zero(row)


def test_foreign_load_counts_in_totals_and_buckets(load: Any, row: Any) -> None:
    load.add_foreign(row, 3, 1500, 100)
    assert (row.n, row.held, row.remaining) == (3, 1500, 300)
    assert (row.bucket_n[4], row.bucket_held[4]) == (3, 1500)


NUMBER = st.one_of(
    st.none(),
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(0, 1e5),
    st.integers(0, 5000),
)
STEP = st.tuples(
    st.sampled_from(("reserve", "first_token", "prefilled", "progress", "release")),
    st.integers(0, 4),
    NUMBER,
)


@settings(max_examples=300)
@given(
    requests=st.lists(st.tuples(NUMBER, NUMBER, NUMBER, NUMBER, NUMBER), min_size=5, max_size=5),
    steps=st.lists(STEP, max_size=60),
)
def test_sums_return_to_exactly_zero_after_any_interleaving(
    requests: list[tuple[Any, ...]], steps: list[tuple[str, int, Any]]
) -> None:
    rows = LOAD.new(1)
    row = rows[0]
    names = ("n", "prompt", "mean", "sd", "max_tokens")
    records = [request_of(RUNTIME, **dict(zip(names, values, strict=True))) for values in requests]
    for operation, which, number in steps:
        r = records[which]
        if operation == "progress":
            LOAD.progress(row, r, number)
        else:
            getattr(LOAD, operation)(row, r)
        values = figures(row)
        assert all(values[name] >= 0 for name in TOTALS), "no figure is ever negative or NaN"
        for total in ("n", "held", "variance"):
            assert sum(values[f"bucket_{total}"]) == values[total], "the buckets hold all of it"
    for r in records:
        LOAD.release(row, r)
    assert is_zero(row)
    del rows


@settings(max_examples=60)
@given(
    first=st.floats(1, 5000),
    second=st.floats(1, 5000),
    tokens=st.integers(0, 3000),
    choices=st.integers(1, 4),
    streams=st.booleans(),
)
def test_a_refined_request_counts_as_predicted_now_and_leaves_nothing_behind(
    first: float, second: float, tokens: int, choices: int, streams: bool
) -> None:
    rows = LOAD.new(2)
    request, other = (request_of(RUNTIME, mean=mean, n=choices, sd=mean) for mean in (first, second))
    for row, one in ((rows[0], request), (rows[1], other)):
        LOAD.reserve(row, one)
        if streams:
            LOAD.first_token(row, one)
        LOAD.progress(row, one, tokens)
    request[b"mean"] = request[b"sd"] = second
    LOAD.refine(rows[0], request)
    assert figures(rows[0]) == figures(rows[1])
    LOAD.release(rows[0], request)
    assert is_zero(rows[0])


def test_a_request_that_is_not_reserved_is_not_refined(lua: Any, load: Any, row: Any) -> None:
    load.refine(row, request_of(lua))
    assert is_zero(row)
