"""The running figures per model."""

from __future__ import annotations

import json

import pytest

from sidecar.learning.figures import Figures
from tokenweir.contract import names
from tokenweir.contract.records import Completion


def record(model="m", **members):
    values = {
        "id": "r",
        "gateway": "g",
        "time_ms": 1,
        "model": model,
        "backend": "a",
        "kind": "chat",
        "output": 100,
        "output_source": "usage",
        "outcome": "ok",
    }
    return Completion.model_validate(values | members)


def published(*records, model="m"):
    figures = Figures()
    for one in records:
        figures.add(one)
    return figures.published().get(model)


def test_outputs_of_requests_that_ended_well_count():
    stats = published(record(output=100), record(output=300))
    assert (stats.count, stats.mean) == (2, pytest.approx(200, rel=0.01))


@pytest.mark.parametrize(
    "members",
    [
        {"outcome": "client_gone"},
        {"outcome": "upstream_broke"},
        {"output": None},
        {"output_source": "none"},
        {"kind": "embeddings"},
    ],
)
def test_other_outputs_do_not(members):
    assert published(record(**members)) is None


def test_a_request_with_several_choices_is_several_outputs():
    stats = published(record(n=4, output=400))
    assert (stats.count, stats.mean) == (4, pytest.approx(100))


def test_tokens_per_byte_comes_from_prompts_long_enough_to_tell():
    stats = published(record(prompt=250, prompt_bytes=1000), record(prompt=30, prompt_bytes=2))
    assert stats.tokens_per_byte == pytest.approx(0.25)


def test_tokens_per_event_comes_from_streams_whose_usage_is_told():
    stats = published(
        record(output=120, events=100, stream=True), record(output=999, events=1, output_source="events")
    )
    assert stats.tokens_per_event == pytest.approx(1.2)


def test_ratios_without_measurement_have_the_contracts_defaults():
    stats = published(record())
    assert (stats.tokens_per_byte, stats.tokens_per_event) == (0.25, 1)


def test_models_are_apart_and_bounded_in_number():
    figures = Figures()
    for _ in range(3):
        figures.add(record("often"))
    for n in range(names.MAX_MODELS + 50):
        figures.add(record(f"m{n}"))
    assert len(figures.models) <= names.MAX_MODELS
    assert figures.published()["often"].count == 3


def test_a_dump_restores_the_same_figures():
    figures = Figures()
    figures.add(record(prompt=250, prompt_bytes=1000, events=50))
    restored = Figures.restore(json.loads(json.dumps(figures.dump())))
    assert restored.published() == figures.published()
