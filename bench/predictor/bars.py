"""What must hold."""

from __future__ import annotations

from typing import Any, Final

from bench.predictor.figures import OVERALL
from bench.report import Bar

OURS: Final = "tokenweir"
OFFLINE: Final = "TF-IDF + boosting, offline"
Found = dict[str, dict[str, dict[str, float]]]


def bars(
    *,
    prompts: Found,
    history: Found,
    deviation: dict[str, float],
    drift: dict[str, float],
    timing: dict[str, dict[str, float]],
    tokens: dict[str, dict[str, float]],
) -> list[Bar]:
    """The bars of a run."""
    found: list[Bar] = []
    ours, offline, past = prompts[OURS], prompts[OFFLINE], history[OURS]
    for source in ours:
        least = 0.95 * offline[source]["mae_vs_median"]
        found.append(
            Bar(f"error against the median, {source}", ours[source]["mae_vs_median"], ">=", round(least, 4))
        )
    for source in ours:
        least = 0.9 * offline[source]["kendall_tau"]
        found.append(Bar(f"rank correlation, {source}", ours[source]["kendall_tau"], ">=", round(least, 4)))
    found.append(
        Bar("error against the median with history, overall", past[OVERALL]["mae_vs_median"], ">=", 0.2)
    )
    for source in past:
        covered = past[source]["coverage_q90"]
        found.append(Bar(f"coverage of the 90 % quantile, {source}, at least", covered, ">=", 0.88))
        found.append(Bar(f"coverage of the 90 % quantile, {source}, at most", covered, "<=", 0.92))
    later = drift["coverage_later"]
    found += [
        Bar("prediction deviation per minute", deviation["prediction_deviation"], "<=", 0.2),
        Bar("coverage 500 completions after the outputs doubled, at least", later, ">=", 0.85),
        Bar("coverage 500 completions after the outputs doubled, at most", later, "<=", 0.95),
        Bar("evaluation at 2 KB, p50, us", timing["2 KB"]["eval_us_p50"], "<=", 25),
        Bar("evaluation at 2 KB, p99, us", timing["2 KB"]["eval_us_p99"], "<=", 50),
        Bar("evaluation at 220 KB, p50, us", timing["220 KB"]["eval_us_p50"], "<=", 70),
    ]
    for tokenizer, errors in tokens.items():
        found.append(Bar(f"median error of prompt tokens, {tokenizer}", errors["error"], "<=", 0.1))
    return found


def rows(method: str, split: str, found: dict[str, dict[str, float]], **facts: Any) -> list[dict[str, Any]]:
    """The cases of a method in a split, one a source."""
    return [
        {"case": {"split": split, "method": method, "source": source, **facts}, **figures}
        for source, figures in found.items()
    ]
