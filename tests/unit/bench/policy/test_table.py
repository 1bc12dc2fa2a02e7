"""`bench/policy/table.py`: what people read of a cell."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from bench.policy import table


def figures(**others: float) -> dict[str, Any]:
    """A row."""
    plain = {key: 0.0 for _, key, _ in table.COLUMNS}
    return plain | {"good_share": 0.8765, "goodput": 4.24, "p99_s": 107.25, "utilisation": 0.79, **others}


def shown(rows: dict[str, dict[str, Any]], width: int) -> str:
    """The table as a console of this width has it."""
    out = StringIO()
    table.show("a cell", rows, Console(file=out, width=width), own="predictive")
    return out.getvalue()


ROWS = {"nginx_round_robin": figures(memory_share=0.0841), "predictive, running figures only": figures()}


def test_a_wide_console_has_a_place_for_every_column() -> None:
    text = shown(ROWS, 150)
    assert all(head.split()[0] in text for head, _, _ in table.COLUMNS)
    assert "no place" not in text


def test_in_a_narrow_console_no_figure_is_cut_and_what_is_left_out_is_named() -> None:
    text = shown(ROWS, 80)
    assert "…" not in text
    assert all(told in text for told in ("87.65%", "107.25", "8.41%", "nginx_round_robin"))
    assert "no place for: goodput/s, refused, preempted, hits" in text
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("│ \n") + text.count("│\n") >= 3


def test_what_is_not_nothing_stays_longer_than_what_is() -> None:
    text = shown({"predictive": figures(preempted_share=0.25)}, 80)
    assert "25.00%" in text
    assert "hits" in text.split("no place for:")[1]


def test_no_width_cuts_a_figure() -> None:
    for width in range(70, 160, 5):
        assert "…" not in shown(ROWS, width)
