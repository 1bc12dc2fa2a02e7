"""How much fits on a backend."""

from __future__ import annotations

from sidecar.control.capacity import CapacityEstimate
from sidecar.telemetry.readings import EngineReading, ModelsReading, Record
from tokenweir.config.models import BackendConfig


def config(**members):
    return BackendConfig(url="http://10.0.0.1:8000", **members)


ENGINE = EngineReading(at=0, source="vllm", capacity=41_408)
MODELS = ModelsReading(at=0, source="/v1/models", capacity=2048, context=2048, slots=4)


def test_the_configuration_wins_over_the_engine_and_the_engine_over_its_list_of_models():
    estimate = CapacityEstimate()
    record = Record(engine=ENGINE, models=MODELS)
    assert estimate.of(config(kv_capacity=7), record).tokens == 7
    assert estimate.of(config(), record).tokens == 41_408
    assert estimate.of(config(), Record(models=MODELS)).tokens == 2048


def test_context_and_slots_are_taken_over():
    capacity = CapacityEstimate().of(config(), Record(models=MODELS))
    assert (capacity.context, capacity.concurrency) == (2048, 4)
    assert CapacityEstimate().of(config(context=99, concurrency=1), Record(models=MODELS)).concurrency == 1


def test_an_engine_that_tells_no_capacity_is_bounded_by_the_batch_beside_which_others_waited():
    estimate = CapacityEstimate()
    silent = Record(engine=EngineReading(at=0, source="tgi", running=5, waiting=0))
    estimate.observe(silent)
    assert estimate.of(config(), silent).concurrency is None
    estimate.observe(Record(engine=EngineReading(at=0, source="tgi", running=8, waiting=3)))
    estimate.observe(Record(engine=EngineReading(at=0, source="tgi", running=6, waiting=1)))
    capacity = estimate.of(config(), silent)
    assert (capacity.tokens, capacity.concurrency) == (None, 8)
    assert "8 requests at once" in capacity.reason


def test_nothing_is_invented_where_nothing_is_told():
    capacity = CapacityEstimate().of(config(), Record())
    assert (capacity.tokens, capacity.context, capacity.concurrency) == (None, None, None)
