"""`lua/tokenweir/core/backend/peak.lua`."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.lua.fleets import to_lua
from tokenweir.luavm import new_runtime

RUNTIME = new_runtime()
PEAK = RUNTIME.eval(b'require "tokenweir.core.backend.peak"')
LOAD = RUNTIME.eval(b'require "tokenweir.core.backend.load"')
DEMAND = RUNTIME.eval(b'require "tokenweir.core.backend.demand"')


def asked(**members: Any) -> Any:
    """What a request asks, as a policy sees it."""
    out = RUNTIME.table()
    DEMAND.measure(to_lua(RUNTIME, {"n": 1, "sd": 0} | members), out)
    return out


def exact(requests: list[tuple[float, float]]) -> float:
    """The peak by its definition; `requests` are (held, remaining) of each sequence."""
    most = held = 0.0
    for k, (own, remaining) in enumerate(sorted(requests, key=lambda r: -r[1]), start=1):
        held += own
        most = max(most, held + k * remaining)
    return most


class Row:
    """A row with requests in it that have produced so much already."""

    def __init__(self, requests: list[dict[str, Any]]) -> None:
        self.rows = LOAD.new(1)  # kept: a row does not keep its array alive
        self.row = self.rows[0]
        self.sequences: list[tuple[float, float]] = []
        for members in requests:
            r = to_lua(RUNTIME, {"n": 1, "sd": 0} | members)
            LOAD.reserve(self.row, r)
            LOAD.progress(self.row, r, members.get("tokens", 0))
            self.sequences += [(r.held / r.n, r.remaining / r.n)] * int(r.n)


def test_the_bound_is_all_held_and_all_remaining() -> None:
    at = Row([{"prompt": 100, "mean": 50}, {"prompt": 200, "mean": 10}])
    assert PEAK.bound(at.row, asked(prompt=7, mean=3)) == 370


def test_requests_that_end_early_make_room_for_the_long_ones() -> None:
    at = Row([{"prompt": 1000, "mean": 8} for _ in range(10)])
    own = asked(prompt=100, mean=4096)
    assert PEAK.walk(at.row, own) == 10 * 1000 + 100 + 11 * 8
    assert PEAK.bound(at.row, own) == 10 * 1000 + 100 + 4096 + 80


def test_buckets_that_do_not_hold_every_sequence_are_not_believed() -> None:
    at = Row([{"prompt": 1000, "mean": 8} for _ in range(10)])
    LOAD.clear_buckets(at.row)
    own = asked(prompt=100, mean=4096)
    assert PEAK.walk(at.row, own) == PEAK.bound(at.row, own)


def test_an_error_common_to_all_predictions_grows_with_their_sum() -> None:
    at = Row([{"prompt": 0, "mean": 100, "sd": 30} for _ in range(9)])
    own = asked(prompt=0, mean=100, sd=30)
    assert PEAK.deviation(at.row, own, 0) == math.sqrt(10 * 900)
    assert PEAK.deviation(at.row, own, 0.5) == math.sqrt(10 * 900 + 500**2)


REQUEST = st.fixed_dictionaries(
    {
        "n": st.integers(1, 4),
        "prompt": st.integers(0, 20_000),
        "mean": st.one_of(st.integers(1, 2000), st.integers(1, 200_000)),
        "tokens": st.integers(0, 3000),
    }
)


@settings(max_examples=500)
@given(requests=st.lists(REQUEST, max_size=30), own=REQUEST)
def test_the_bucketed_peak_lies_between_the_exact_peak_and_everything_at_once(
    requests: list[dict[str, Any]], own: dict[str, Any]
) -> None:
    at = Row(requests)
    new = asked(**own)
    sequences = [*at.sequences, *[(new.prompt / new.n, new.expected)] * int(new.n)]
    peak = PEAK.walk(at.row, new)
    bound = sum(held + remaining for held, remaining in sequences)
    assert peak >= exact(sequences) * (1 - 1e-12)
    assert peak <= bound * (1 + 1e-12)
    assert peak <= PEAK.bound(at.row, new)
