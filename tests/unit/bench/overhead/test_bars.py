"""Which case decides a bar of the overhead bench."""

from __future__ import annotations

from typing import Any

from bench.overhead.bars import bars


def case(system: str = "tokenweir", *, workers: int = 1, size: int = 2, connections: int = 64, **more: Any):
    facts = {
        "system": system,
        "workers": workers,
        "body_kb": size,
        "text": "prose",
        "connections": connections,
    }
    return {"case": {**facts, "stream": False}, **more}


def values(cases: list[dict[str, Any]]) -> dict[str, float | None]:
    return {bar.name: bar.value for bar in bars(cases)}


def test_the_worst_of_one_and_two_workers_counts():
    found = values(
        [
            case(workers=1, cpu_us_added=9.0, throughput_vs_plain=0.7),
            case(workers=2, cpu_us_added=12.0, throughput_vs_plain=0.8),
        ]
    )
    assert found["CPU added to plain nginx at 2 KB, us"] == 12.0
    assert found["throughput of plain nginx's at 2 KB"] == 0.7


def test_other_systems_bodies_and_connections_do_not_count():
    found = values(
        [
            case(cpu_us_added=9.0),
            case("smg", cpu_us_added=200.0),
            case(size=20, cpu_us_added=30.0),
            case(connections=1, cpu_us_added=40.0),
        ]
    )
    assert found["CPU added to plain nginx at 2 KB, us"] == 9.0


def test_code_does_not_count_in_the_bar_for_prose():
    code = case(size=220, cpu_vs_vllm_router=0.9)
    code["case"]["text"] = "code"
    found = values([case(size=220, cpu_vs_vllm_router=0.5), code])
    assert found["CPU of vllm-router's at 220 KB of prose"] == 0.5


def test_what_was_not_measured_misses_its_bar():
    assert not any(bar.ok for bar in bars([]))


def test_a_trained_predictor_has_bars_of_its_own():
    found = values([case(cpu_us_added=9.0), case("tokenweir-predictor", cpu_us_added=33.0)])
    assert found["CPU added to plain nginx at 2 KB, us"] == 9.0
    assert found["CPU added, predicting, at 2 KB, us"] == 33.0
