"""`lua/tokenweir/core/prediction/trees.lua`."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lua.readers import CORE

TREES = CORE.require("tokenweir.core.prediction.trees")
FFI = CORE.require("ffi")
LEAF = 255
STUMP = [(0, 2, 0.5), (LEAF, 0, 1.0), (LEAF, 0, 3.0)]
DEEP = [(1, 4, 0.0), (0, 3, -1.0), (LEAF, 0, 10.0), (LEAF, 0, 20.0), (LEAF, 0, 30.0)]


def forest(*trees: list[tuple[int, int, float]], roots: list[int] | None = None, features: int = 2) -> Any:
    """The forest of trees given as (feature, right child within the tree, value); or (None, why)."""
    nodes: list[tuple[int, int, float]] = []
    starts = []
    for tree in trees:
        first = len(nodes)
        starts.append(first)
        nodes += [(feature, first + right if feature != LEAF else 0, value) for feature, right, value in tree]
    roots = starts if roots is None else roots
    arrays = (
        pack("uint16_t", "H", roots),
        pack("uint8_t", "B", [node[0] for node in nodes]),
        pack("uint16_t", "H", [node[1] for node in nodes]),
        pack("double", "d", [node[2] for node in nodes]),
    )
    return TREES.new(len(nodes), len(roots), *arrays, features)


KEPT: list[Any] = []


def pack(ctype: str, code: str, values: list[Any]) -> Any:
    raw = struct.pack(f"<{len(values)}{code}", *values)
    array = FFI.new(f"{ctype}[?]".encode(), len(values))
    FFI.copy(array, raw, len(raw))
    KEPT.append(array)
    return array


def sum_of(found: Any, first: int, last: int, x: list[float]) -> float:
    TREES.read(found, pack("float", "f", x))
    return float(TREES.sum(found, first, last))


@pytest.mark.parametrize(("x", "said"), [(0.4, 1), (0.5, 1), (0.6, 3)])
def test_a_value_up_to_the_cut_goes_left(x: float, said: float) -> None:
    assert sum_of(forest(STUMP), 0, 0, [x, 0]) == said


@pytest.mark.parametrize(("x", "said"), [((-2, -1), 10), ((0, 0), 20), ((0, 1), 30)])
def test_a_node_s_left_child_stands_behind_it(x: tuple[float, float], said: float) -> None:
    assert sum_of(forest(DEEP), 0, 0, list(x)) == said


def test_an_ensemble_is_the_sum_of_its_trees() -> None:
    found = forest(STUMP, DEEP, [(LEAF, 0, 7.0)])
    assert sum_of(found, 0, 2, [0, 1]) == 1 + 30 + 7
    assert sum_of(found, 1, 1, [0, 1]) == 30
    assert sum_of(found, 1, 0, [0, 1]) == 0


def line(cuts: list[float]) -> list[tuple[int, int, float]]:
    """A tree whose leaf number k, from the left, is for values above `k` of the rising cuts."""
    count = len(cuts)
    # The cuts from the greatest to the least, each node's left child the next one; leaves behind them.
    inner = [(0, 2 * count - k, cut) for k, cut in enumerate(sorted(cuts, reverse=True))]
    return [*inner, *((LEAF, 0, float(k)) for k in range(count + 1))]


def is_told_from_nothing(value: float) -> bool:
    """What is nearer to 0 counts as 0."""
    return value == 0 or abs(value) > 2**-79


@given(
    st.lists(st.floats(-1e9, 1e9).filter(is_told_from_nothing), min_size=1, max_size=12, unique=True),
    st.floats(width=32, allow_nan=False).filter(is_told_from_nothing),
)
def test_every_value_goes_where_its_comparison_says(cuts: list[float], x: float) -> None:
    for value in (x, *(struct.unpack("f", struct.pack("f", cut))[0] for cut in cuts)):
        said = sum_of(forest(line(cuts)), 0, 0, [value, 0])
        assert said == sum(value > cut for cut in cuts)


@pytest.mark.parametrize(
    "tree",
    [
        [(0, 0, 0.5), (LEAF, 0, 1.0), (LEAF, 0, 1.0)],
        [(0, 9, 0.5), (LEAF, 0, 1.0), (LEAF, 0, 1.0)],
        [(2, 2, 0.5), (LEAF, 0, 1.0), (LEAF, 0, 1.0)],
        [(0, 2, float("nan")), (LEAF, 0, 1.0), (LEAF, 0, 1.0)],
        [(0, 2, 0.5), (LEAF, 0, float("inf")), (LEAF, 0, 1.0)],
        [(LEAF, 0, 1.0), (0, 2, 0.5)],
        [(0, 2, 0.5), (0, 3, 0.5), (LEAF, 0, 1.0), (LEAF, 0, 1.0)],
        [(0, 3, 0.5), (LEAF, 0, 1.0), (LEAF, 0, 1.0), (LEAF, 0, 1.0)],
    ],
)
def test_trees_that_would_lead_astray_are_refused(tree: list[tuple[int, int, float]]) -> None:
    found = forest(tree)
    assert found[0] is None
    assert found[1]


def test_roots_out_of_order_are_refused() -> None:
    assert forest(STUMP, STUMP, roots=[3, 0])[0] is None
    assert forest(STUMP, roots=[1])[0] is None
