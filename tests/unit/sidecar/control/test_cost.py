"""Start coefficients from the table of facts, and how they follow the engine."""

from __future__ import annotations

import pytest

from sidecar.control.cost import CostEstimate, start_cost
from sidecar.control.hardware import Hardware
from sidecar.telemetry.readings import EngineReading, Record, Total
from tokenweir import facts
from tokenweir.contract.records import Completion


def test_a_known_gpu_and_model_cost_what_the_table_says():
    cost, reason = start_cost("H100", "meta-llama/Meta-Llama-3-8B-Instruct", "fp8", 2)
    step = facts.coefficients("H100", "llama-3-8b", "fp8", 2)
    assert (cost.prefill, cost.base, cost.per_kv_token) == (step.prefill, step.base, step.per_kv_token)
    assert "H100" in reason
    assert "unknown" not in reason


@pytest.mark.parametrize(
    ("gpu", "model", "precision", "said"),
    [
        ("", "llama-3-8b", "", "GPU not told"),
        ("Voodoo2", "llama-3-8b", "", "'Voodoo2' unknown"),
        ("T4", "", "", "model not known"),
        ("T4", "llama-3-8b", "fp3", "'fp3' unknown"),
    ],
)
def test_what_is_unknown_gets_a_sound_default_and_the_reason_says_so(gpu, model, precision, said):
    cost, reason = start_cost(gpu, model, precision, 1)
    assert cost.base > 0
    assert cost.prefill > 0
    assert said in reason


def test_a_faster_card_costs_less():
    slow, fast = (start_cost(gpu, "llama-3-8b", "", 1)[0] for gpu in ("T4", "H100"))
    assert slow.base > 3 * fast.base


def reading(at, tokens, gap_ms, running=4.0, **members):
    """A look by which `tokens` were produced since the start, each `gap_ms` after the one before."""
    values = {
        "running": running,
        "kv_use": 0.1,
        "capacity": 10_000,
        "output_tokens": float(tokens),
        "inter_token": Total(tokens * gap_ms, tokens),
        "steps": Total(tokens, tokens / running),
    } | members
    return EngineReading(at=at, source="vllm", **values)


def fitted(gap_ms, looks=40):
    estimate = CostEstimate()
    start, _ = estimate.of(KNOWN)
    record = Record()
    for k in range(looks):
        record.engine = reading(500.0 * k, 100 * k, gap_ms)
        estimate.observe(record, 10_000, 500.0 * k)
    return estimate, start


KNOWN = Hardware("A100-80G", "llama-3-8b", "fp16", 1)


def test_the_fit_follows_what_the_engine_measures():
    estimate, start = fitted(gap_ms=50.0)
    cost, reason = estimate.of(KNOWN)
    step = cost.base + 4 * cost.per_sequence + 1000 * cost.per_kv_token
    assert step == pytest.approx(50, rel=0.05)
    assert cost.base > 2 * start.base
    assert "fitted to" in reason
    assert "times facts of 1 x A100-80G" in reason


def test_other_hardware_begins_anew():
    estimate, start = fitted(gap_ms=50.0)
    cost, _ = estimate.of(Hardware("H100", "llama-3-8b", "fp16", 1))
    assert cost.base < start.base


def completion(per_token, output=101, **members):
    values = {"id": "r", "gateway": "g", "time_ms": 1, "model": "m", "backend": "a", "kind": "chat"}
    values |= {"outcome": "ok", "stream": True, "output": output, "ttft_ms": 100}
    return Completion.model_validate(values | {"total_ms": 100 + per_token * (output - 1)} | members)


def test_the_completions_check_the_fit():
    estimate, _ = fitted(gap_ms=50.0)
    for _ in range(20):
        estimate.completed(completion(60.0), 4, 1000, True, 0)
    assert estimate.check == pytest.approx(1.2, rel=0.01)
    assert "completions took 1.20 times" in estimate.of(KNOWN)[1]


def test_short_and_whole_answers_check_nothing():
    estimate, _ = fitted(gap_ms=50.0)
    estimate.completed(completion(60.0, output=3), 4, 1000, True, 0)
    estimate.completed(completion(60.0, stream=False), 4, 1000, True, 0)
    assert estimate.check is None


def test_an_engine_that_tells_nothing_is_fitted_by_the_completions():
    estimate = CostEstimate()
    start, _ = estimate.of(KNOWN)
    for k in range(40):
        estimate.completed(completion(4 * start.base), 1, 0, False, 500.0 * k)
    assert estimate.of(KNOWN)[0].base == pytest.approx(4 * start.base, rel=0.1)
