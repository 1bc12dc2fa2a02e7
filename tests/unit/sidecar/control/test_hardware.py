"""What a backend runs on, as far as the facts know it."""

from __future__ import annotations

from sidecar.control.hardware import hardware
from sidecar.telemetry.readings import CardReading, Record
from tokenweir import facts
from tokenweir.config.models import BackendConfig, ModelConfig


def config(**members):
    return BackendConfig(url="http://10.0.0.1:8000", **members)


def test_the_card_by_its_exporter_counts_where_none_is_configured():
    record = Record(card=CardReading(at=0, source="dcgm", name="NVIDIA H100 80GB HBM3"))
    assert "H100" in hardware(config(), record, {}, ["llama-3-8b"]).gpu
    assert hardware(config(gpu="T4"), record, {}, ["llama-3-8b"]).gpu == "T4"


def test_a_model_may_be_named_in_the_table_by_its_configuration():
    models = {"fast": ModelConfig(name="fast", facts="qwen2.5-7b")}
    assert hardware(config(), Record(), models, ["fast", "/srv/x.gguf"]).model == "qwen2.5-7b"


def test_capacity_and_fp8_are_known_of_known_cards_only():
    known = hardware(config(gpu="H100"), Record(), {}, ["llama-3-8b"])
    assert known.fp8
    assert known.kv_capacity == facts.kv_capacity("H100", "llama-3-8b")
    unknown = hardware(config(gpu="Voodoo2"), Record(), {}, ["llama-3-8b"])
    assert (unknown.fp8, unknown.kv_capacity) == (False, None)


def test_what_does_not_fit_has_no_capacity():
    assert hardware(config(gpu="T4"), Record(), {}, ["llama-3-70b"]).kv_capacity is None


def test_names_of_precisions_are_brought_together():
    assert hardware(config(precision="BF16"), Record(), {}, []).precision == "fp16"
    assert hardware(config(precision="awq"), Record(), {}, []).precision == "int4"
