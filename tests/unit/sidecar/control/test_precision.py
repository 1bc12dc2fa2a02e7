"""The preferred variant of a model."""

from __future__ import annotations

import pytest

from sidecar.control.model_load import BackendUse
from sidecar.control.precision import Precision, variant
from tokenweir.config.control import PrecisionConfig

CONFIG = PrecisionConfig()


def one(precision, share, fp8=True, usable=True):
    return BackendUse(use=share, capacity=1000, usable=usable, precision=precision, fp8=fp8)


def test_quality_is_preferred_while_memory_lasts():
    precision = Precision()
    assert precision.update([one("fp16", 0.3), one("fp8", 0.1)], CONFIG, 0)
    assert precision.preferred == "fp16"


def test_under_pressure_what_saves_memory_is_preferred():
    precision = Precision()
    precision.update([one("fp16", 0.6), one("fp8", 0.15)], CONFIG, 0)
    assert precision.preferred == "fp8"
    assert "memory pressure: 75% of what fp16 can hold" in precision.reason


def test_where_the_load_lies_does_not_change_the_pressure():
    precision = Precision()
    precision.update([one("fp16", 0.75), one("fp8", 0.0)], CONFIG, 0)
    for k in range(1, 100):
        moved = min(0.75, 0.1 * k)
        precision.update([one("fp16", 0.75 - moved), one("fp8", moved)], CONFIG, 1000.0 * k)
    assert precision.pressure.changes == 1
    assert precision.preferred == "fp8"


def test_the_pressure_ends_with_hysteresis_and_not_before_its_stay():
    precision = Precision()
    precision.update([one("fp16", 0.75), one("fp8", 0.0)], CONFIG, 0)
    precision.update([one("fp16", 0.65), one("fp8", 0.0)], CONFIG, 20_000)
    assert precision.preferred == "fp8"
    precision.update([one("fp16", 0.55), one("fp8", 0.0)], CONFIG, 20_500)
    assert precision.preferred == "fp16"


def test_fp8_saves_nothing_where_the_gpu_does_not_compute_in_it():
    precision = Precision()
    precision.update([one("fp16", 0.8), one("fp8", 0.1, fp8=False)], CONFIG, 0)
    assert precision.preferred == "fp16"
    precision.update([one("fp16", 0.8), one("fp8", 0.1, fp8=False), one("int4", 0)], CONFIG, 500)
    assert precision.preferred == "int4"


def test_one_variant_or_an_unknown_one_is_no_choice():
    precision = Precision()
    assert not precision.update([one("fp16", 0.8), one("fp16", 0.1)], CONFIG, 0)
    assert not precision.update([one("fp16", 0.8), one("", 0.1), one("weird", 0)], CONFIG, 0)
    assert precision.preferred == ""


def test_a_variant_whose_backends_are_gone_is_not_preferred():
    precision = Precision()
    precision.update([one("fp16", 0.3), one("fp8", 0.1)], CONFIG, 0)
    assert precision.update([one("fp16", 0.3, usable=False), one("fp8", 0.1)], CONFIG, 500)
    assert precision.preferred == ""


def test_the_literal_rule_prefers_fp16_under_pressure_and_else_fp8():
    literal = PrecisionConfig(rule="literal")
    precision = Precision()
    precision.update([one("fp16", 0.3), one("fp8", 0.1)], literal, 0)
    assert precision.preferred == "fp8"
    precision.update([one("fp16", 0.7), one("fp8", 0.1)], literal, 500)
    assert precision.preferred == "fp16"


def test_switched_off_there_is_no_preference():
    precision = Precision()
    precision.update([one("fp16", 0.3), one("fp8", 0.1)], PrecisionConfig(rule="off"), 0)
    assert (precision.preferred, precision.reason) == ("", "")


@pytest.mark.parametrize(
    ("name", "means"), [("bfloat16", "fp16"), ("FP8", "fp8"), ("gptq", "int4"), ("", ""), ("mxfp4", "mxfp4")]
)
def test_names_of_precisions(name, means):
    assert variant(name) == means
