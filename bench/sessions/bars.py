"""What must hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bench.report import Bar
from bench.sessions.runs import BASELINES, OWN

OF_BEST: Final = 0.90
OF_IDEAL: Final = 0.85
HOT_LOAD: Final = 1.25
SHARE_ERROR: Final = 0.30
VISIBLE_MS: Final = 200.0

Found = Mapping[str, Mapping[str, Mapping[str, Any]]]


def of(found: Found, overall: Mapping[str, Any]) -> list[Bar]:
    """The bars of a run."""
    bars = []
    for kind in ("conversations", "agents"):
        own, rivals = found[kind][OWN], [found[kind][name] for name in BASELINES]
        best = max(float(rival["hit_rate"]) for rival in rivals)
        fastest = min(float(rival["ttft_p99_ms"]) for rival in rivals)
        bars += [
            Bar(f"{kind}: hit rate against the best baseline's", own["hit_rate"] / best, ">=", OF_BEST),
            Bar(
                f"{kind}: hit rate against an ideal cache of the real size",
                own["hit_rate"] / own["ideal_real_size"],
                ">=",
                OF_IDEAL,
            ),
            Bar(f"{kind}: p99 TTFT against the best baseline's", own["ttft_p99_ms"] / fastest, "<=", 1.0),
        ]
    return [
        *bars,
        Bar("hot sessions: largest load over the mean", found["hot"][OWN]["load_over_mean"], "<=", HOT_LOAD),
        Bar("moved_needlessly", overall["moved_needlessly"], "==", 0),
        Bar("share_error_max", overall["share_error_max"], "<=", SHARE_ERROR),
        Bar("move_visible_ms", overall["move_visible_ms"], "<=", VISIBLE_MS),
    ]
