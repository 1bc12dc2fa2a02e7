"""Start coefficients from the table of facts."""

from __future__ import annotations

import pytest

from sidecar.control.cost import CostEstimate, start_cost
from sidecar.telemetry.readings import CardReading, Record
from tokenweir import facts
from tokenweir.config.models import BackendConfig, ModelConfig


def config(**members):
    return BackendConfig(url="http://10.0.0.1:8000", **members)


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


def test_the_card_by_its_exporter_counts_where_none_is_configured():
    record = Record(card=CardReading(at=0, source="dcgm", name="NVIDIA H100 80GB HBM3"))
    _, reason = CostEstimate().of(config(), record, {}, ["llama-3-8b"])
    assert "H100" in reason
    _, reason = CostEstimate().of(config(gpu="T4"), record, {}, ["llama-3-8b"])
    assert "T4" in reason


def test_a_model_may_be_named_in_the_table_by_its_configuration():
    models = {"fast": ModelConfig(name="fast", facts="qwen2.5-7b")}
    _, reason = CostEstimate().of(config(gpu="T4"), Record(), models, ["fast", "/srv/x.gguf"])
    assert "qwen2.5-7b" in reason
