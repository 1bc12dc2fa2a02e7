"""The bars that the overhead bench must clear, read from its cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.report import Bar

Case = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """A bar over all of Tokenweir's cases that are as `wanted`: the worst of them counts.

    Without a `system` among what is wanted, those without a trained predictor are meant."""

    name: str
    figure: str
    op: Literal["<=", ">="]
    limit: float
    wanted: Mapping[str, Any] = field(default_factory=dict)

    def bar(self, cases: Iterable[Case]) -> Bar:
        """Return the bar with the worst value, or with none when no case has the figure."""
        wanted = {"system": "tokenweir", **self.wanted}
        values = [
            case[self.figure]
            for case in cases
            if case.get(self.figure) is not None
            and all(case["case"].get(name) == value for name, value in wanted.items())
        ]
        worst = max if self.op == "<=" else min
        return Bar(self.name, worst(values) if values else None, self.op, self.limit)


_SMALL = {"body_kb": 2, "connections": 64}
_PROSE = {"body_kb": 220, "text": "prose", "connections": 64}
_PREDICTING = {"system": "tokenweir-predictor"}

RULES = (
    Rule("CPU added to plain nginx at 2 KB, us", "cpu_us_added", "<=", 15, _SMALL),
    Rule("throughput of plain nginx's at 2 KB", "throughput_vs_plain", ">=", 0.63, _SMALL),
    Rule("CPU of vllm-router's at 2 KB", "cpu_vs_vllm_router", "<=", 0.65, _SMALL),
    Rule("CPU of vllm-router's at 220 KB of prose", "cpu_vs_vllm_router", "<=", 0.55, _PROSE),
    Rule("CPU added, predicting, at 2 KB, us", "cpu_us_added", "<=", 40, _SMALL | _PREDICTING),
    Rule("CPU of vllm-router's, predicting, at 2 KB", "cpu_vs_vllm_router", "<=", 1, _SMALL | _PREDICTING),
    Rule(
        "CPU of vllm-router's, predicting, at 220 KB of prose",
        "cpu_vs_vllm_router",
        "<=",
        0.6,
        _PROSE | _PREDICTING,
    ),
    Rule("first byte of a stream, added at p99, ms", "first_byte_added_ms_p99", "<=", 0.5),
    Rule("gap between events at p99, of plain nginx's", "gap_vs_plain", "<=", 1.05),
)


def bars(cases: Sequence[Case]) -> list[Bar]:
    """Return the bars, one and two workers taken together."""
    return [rule.bar(cases) for rule in RULES]
