"""`bench/policy/beside.py`: beside a missed bar stands what it comes to for others."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from bench.policy import bars, beside
from bench.policy.cells import AT_SHARE, COLD, IDLE, MIXED, WITHOUT_RAMP
from bench.policy.policies import OWN


def row(cell: str, policy: str, good: float, p99: float, worst_key: float = 1.0) -> dict[str, Any]:
    """A recorded row."""
    return {
        "case": {"cell": cell, "policy": policy},
        "good_share": good,
        "good_share_seeds": [good] * 3,
        "p99_s": p99,
        "p99_s_seeds": [p99] * 3,
        "memory_share": 0.0,
        "worst_key": worst_key,
        "per_minute": 1e6,
    }


def part(cell: str, name: str, **figures: Any) -> dict[str, Any]:
    """What is measured besides."""
    return {"case": {"cell": cell, "part": name}, **figures}


def cell(name: str, own: tuple[float, float, float], rival: tuple[float, float] = (0.8, 10.0)) -> list[Any]:
    """A cell with the policy, a rival, and who knows every length."""
    return [
        row(name, OWN, *own),
        row(name, "clairvoyant", 0.88, 9.5, 2.3),
        row(name, "least_outstanding", *rival),
    ]


def missed(cases: list[dict[str, Any]]) -> beside.Beside:
    """The limits beside what is missed of these."""
    return beside.missed(cases, bars.every(cases))


def test_nothing_stands_beside_a_bar_that_is_met() -> None:
    assert missed(cell("a", (0.9, 9.0, 1.5))) == {}


def test_a_missed_p99_has_the_clairvoyants_the_idle_fleets_and_that_without_a_ramp_beside_it() -> None:
    cases = [
        *cell(COLD, (0.9, 11.0, 1.5)),
        part(COLD, IDLE, good_share=1.0, p99_s=6.0),
        part(COLD, WITHOUT_RAMP, good_share=0.9, p99_s=10.0),
        part("another", IDLE, good_share=1.0, p99_s=1.0),
    ]
    assert missed(cases) == {
        f"{COLD}: {bars.P99}": pytest.approx({"clairvoyant": 0.95, "idle fleet": 0.6, "without ramp": 1.0})
    }


def test_a_missed_gain_is_that_of_the_others_too() -> None:
    name = bars.SATURATED[0]
    cases = [*cell(name, (0.82, 9.9, 1.5)), part(name, IDLE, good_share=0.96, p99_s=9.0)]
    assert missed(cases)[f"{name}: {bars.GAIN}"] == pytest.approx({"clairvoyant": 0.1, "idle fleet": 0.2})


def test_a_slowed_key_is_slowed_for_who_knows_every_length_too() -> None:
    cases = [*cell("a", (0.9, 9.0, 2.4)), part("a", IDLE, good_share=1.0, p99_s=6.0)]
    assert missed(cases) == {f"a: {bars.WORST_KEY}": {"clairvoyant": 2.3}}


def test_the_mixed_fleet_is_held_against_the_best_rival_at_that_rate() -> None:
    p99 = {OWN: 7.0, "clairvoyant": 6.5, "round_robin": 100.0, "least_outstanding": 10.0, "ewma": None}
    cases = [
        part(MIXED, AT_SHARE, p99_s=p99, good_share={}),
        part(MIXED, IDLE, good_share=1.0, p99_s=4.0),
    ]
    assert missed(cases) == {bars.AT_80: pytest.approx({"clairvoyant": 0.65, "idle fleet": 0.4})}


def test_against_a_rival_that_never_ends_all_is_well() -> None:
    rows = {OWN: row("a", OWN, 0.9, 9.0), "least_outstanding": row("a", "least_outstanding", 0.1, inf)}
    assert bars.against_best(rows, "p99_s", 9.0) == 0
    assert bars.against_best(rows, "p99_s", inf) == 1
