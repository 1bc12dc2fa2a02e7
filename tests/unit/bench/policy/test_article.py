"""`bench/policy/article.py`: the article's table, and what must hold of it."""

from __future__ import annotations

from typing import Any

from bench.policy import article, bars

TIGHT = article.TIGHT


def closed(
    policy: str, clients: int, memory: float, capacity: int = TIGHT, gone: float = 0.0
) -> dict[str, Any]:
    """A closed loop's case: the share lost for memory, and because no server was there."""
    return {
        "case": {
            "table": "article",
            "capacity": capacity,
            "policy": policy,
            "loop": "closed",
            "clients": clients,
        },
        "memory_share": memory,
        "success": 1 - memory - gone,
    }


def opened(policy: str, sustained: float, shares: dict[float, float]) -> dict[str, Any]:
    """An open loop's case: the share lost for memory at each rate."""
    return {
        "case": {"table": "article", "capacity": TIGHT, "policy": policy, "loop": "open"},
        "sustained_rate": sustained,
        "curve": [{"rate": rate, "memory_share": share} for rate, share in shares.items()],
    }


def test_the_articles_figures_stand_beside_the_load_at_which_round_robin_loses_as_much() -> None:
    cases = [
        closed(policy, clients, share)
        for policy, shares in (("round_robin", (0.02, 0.2, 0.5)), ("predictive", (0.0, 0.001, 0.002)))
        for clients, share in zip((24, 40, 56), shares, strict=True)
    ]
    rows = article.beside([*cases, closed("round_robin", 96, 0.23, capacity=54_000)])
    assert [(policy, case["case"]["clients"]) for policy, _, case in rows] == [
        ("round_robin", 40),
        ("predictive", 40),
    ]
    assert rows[0][1]["memory_share"] == 0.23
    assert article.beside([]) == []


def test_what_found_no_server_counts_as_lost_too() -> None:
    cases = [closed("round_robin", 50, 0.12, gone=0.11), closed("round_robin", 56, 0.13, gone=0.47)]
    assert [case["case"]["clients"] for _, _, case in article.beside(cases)] == [50]


def found(cases: list[dict[str, Any]]) -> dict[str, bars.Bar]:
    """The bars by name."""
    return {bar.name: bar for bar in bars.every(cases)}


def test_the_sustained_rate_is_held_against_round_robins() -> None:
    cases = [opened("round_robin", 6.0, {8: 0.3}), opened("predictive", 9.0, {8: 0.0})]
    bar = found(cases)["tight fleet: sustained rate / round robin's"]
    assert bar.value == 1.5
    assert not bar.ok


def test_what_is_lost_for_memory_counts_only_where_round_robin_loses_much() -> None:
    cases = [
        opened("round_robin", 6.0, {8: 0.1, 9: 0.25}),
        opened("predictive", 9.0, {8: 0.05, 9: 0.001}),
        closed("round_robin", 40, 0.4),
        closed("predictive", 40, 0.002),
    ]
    bar = found(cases)["the article's table: out of memory where round robin loses 23 %"]
    assert bar.value == 0.002
    assert bar.ok


def test_nothing_is_said_of_a_table_that_was_not_made() -> None:
    assert found([]) == {}
