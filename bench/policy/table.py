"""The tables that people read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isinf
from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = (
    ("good", "good_share", "{:.2%}"),
    ("goodput/s", "goodput", "{:.2f}"),
    ("p50 s", "p50_s", "{:.2f}"),
    ("p99 s", "p99_s", "{:.2f}"),
    ("p99 TTFT s", "ttft_p99_s", "{:.2f}"),
    ("out of memory", "memory_share", "{:.2%}"),
    ("refused", "refused_share", "{:.2%}"),
    ("preempted", "preempted_share", "{:.2%}"),
    ("busy", "utilisation", "{:.0%}"),
    ("hits", "prefix_hits", "{:.0%}"),
)
WHOLE = 150
"""Characters from which nothing wraps."""
ZEROS = ("prefix_hits", "preempted_share", "refused_share", "memory_share")
"""Left out of a narrow table, in this order, where they are nothing but 0."""
LESS = ("goodput", "utilisation", "prefix_hits", "preempted_share", "refused_share")
"""Left out then, in this order, as far as is needed."""
ARTICLE = (
    "policy",
    "sustained/s",
    "clients",
    "completed/s",
    "p99 s",
    "busy",
    "out of memory",
    "success",
)


def shown(value: float, form: str) -> str:
    """A figure as text; what has no end is a dash."""
    return "-" if isinf(value) else form.format(value)


def show(title: str, rows: Mapping[str, Mapping[str, Any]], console: Console, own: str = "") -> None:
    """One cell: a row for each policy; `own` stands out. Columns that a narrow console has no place for are
    left out and named."""
    columns = _fitting(rows, console.width)
    table = Table(title=title)
    table.add_column("policy", min_width=_longest_word(rows))
    for head, key, form in columns:
        least = _least(rows, head, key, form)
        # Where place is short it is taken from the heads, which wrap.
        table.add_column(head, justify="right", width=least if console.width < WHOLE else None)
    for name, figures in rows.items():
        cells = [shown(figures[key], form) for _, key, form in columns]
        table.add_row(name, *cells, style="bold" if name == own else None)
    console.print(table)
    missing = [head for head, key, _ in COLUMNS if key not in {key for _, key, _ in columns}]
    if missing:
        console.print(f"no place for: {', '.join(missing)} (a wider terminal shows them)")


def _fitting(rows: Mapping[str, Mapping[str, Any]], width: int) -> list[tuple[str, str, str]]:
    """The columns for which a console of so many characters has a place."""
    columns = list(COLUMNS)
    zeros = [key for key in ZEROS if not any(figures[key] for figures in rows.values())]
    for key in (*zeros, *LESS):
        if _width(rows, columns) <= width:
            break
        columns = [column for column in columns if column[1] != key]
    return columns


def _width(rows: Mapping[str, Mapping[str, Any]], columns: Sequence[tuple[str, str, str]]) -> int:
    """The least width of a table in which no word and no figure is cut."""
    inner = _longest_word(rows) + sum(_least(rows, *column) for column in columns)
    return inner + 3 * (len(columns) + 1) + 1


def _longest_word(names: Iterable[str]) -> int:
    return max(len(word) for name in ("policy", *names) for word in name.split())


def _least(rows: Mapping[str, Mapping[str, Any]], head: str, key: str, form: str) -> int:
    """The least width of a column."""
    return max(map(len, (*head.split(), *(shown(figures[key], form) for figures in rows.values()))))


def article(cases: Sequence[Mapping[str, Any]], console: Console) -> None:
    """The article's table: the sustained rate, and the closed loops."""
    for capacity in sorted({case["case"]["capacity"] for case in cases}):
        of = [case for case in cases if case["case"]["capacity"] == capacity]
        table = Table(title=f"8 x A100-80G, {capacity:,} KV tokens each, engines that die when full")
        for head in ARTICLE:
            table.add_column(head, justify="left" if head == "policy" else "right")
        for policy in dict.fromkeys(case["case"]["policy"] for case in of):
            rows = [case for case in of if case["case"]["policy"] == policy]
            rate = next(case["sustained_rate"] for case in rows if case["case"]["loop"] == "open")
            for k, case in enumerate(case for case in rows if case["case"]["loop"] == "closed"):
                table.add_row(
                    policy if k == 0 else "",
                    f"{rate:.1f}" if k == 0 else "",
                    f"{case['case']['clients']}",
                    *_closed(case),
                    f"{case['success']:.2%}",
                )
        console.print(table)


def _closed(figures: Mapping[str, float]) -> list[str]:
    return [
        f"{figures['completed_qps']:.2f}",
        shown(figures["p99_done_s"], "{:.1f}"),
        f"{figures['utilisation']:.0%}",
        f"{figures['memory_share']:.2%}",
    ]


def beside(rows: Sequence[tuple[str, Mapping[str, float], Mapping[str, Any]]], console: Console) -> None:
    """What the article tells of its policies, and what came out here."""
    if not rows:
        return
    clients = rows[0][2]["case"]["clients"]
    table = Table(
        title=f"The article's figures, and a closed loop of {clients} clients here (p99: completed ones)"
    )
    table.add_column("policy")
    for head in (
        "article: completed/s",
        "p99 s",
        "busy",
        "out of memory",
        "here: completed/s",
        "p99 s",
        "busy",
        "out of memory",
        "success",
    ):
        table.add_column(head, justify="right")
    for policy, told, here in rows:
        known = {"completed_qps": told["qps"], "p99_done_s": told["p99_s"], **told}
        table.add_row(policy, *_closed(known), *_closed(here), f"{here['success']:.2%}")
    console.print(table)


def limits(rows: Sequence[Mapping[str, float]], console: Console) -> None:
    """What no policy can better."""
    for row in rows:
        console.print(
            f"{row['capacity']:,} KV tokens: {row['full_memory_rate']:.1f}/s with memory always full, by "
            f"{row['mean_prompt']:,.0f} tokens of prompt and {row['mean_output']:.0f} of output on average; "
            f"p99 of requests on an idle server {row['alone_p99_s']:.1f} s"
        )
