"""The fit of the cost coefficients."""

from __future__ import annotations

import math
import random

import pytest

from sidecar.control.cost_fit import CostFit, Step
from tokenweir import facts
from tokenweir.contract.records import Cost


def table(gpu, precision="fp16"):
    step = facts.coefficients(gpu, "llama-3-8b", precision)
    return Cost(
        prefill=step.prefill,
        base=step.base,
        per_sequence=step.per_sequence,
        per_kv_token=step.per_kv_token,
    )


class Engine:
    """An emulated A100 under a wandering load."""

    def __init__(self, seed=1, noise=0.02):
        self.time = facts.step_time("A100-80G", "llama-3-8b")
        self.source = random.Random(seed)
        self.noise = noise
        self.sequences = 20.0

    def step(self, slowdown=1.0):
        source = self.source
        self.sequences = min(60.0, max(1.0, self.sequences + source.gauss(0, 2)))
        kv = self.sequences * source.uniform(500, 1200)
        prompts = source.choice([0, 0, 30, 60, 10])
        ms = slowdown * self.time.ms(self.sequences + prompts, self.sequences, kv)
        return Step(ms * (1 + source.gauss(0, self.noise)), self.sequences, kv, prompts, 0.04)

    def error(self, fit, slowdown=1.0):
        """Relative error of the fit's steps over a range of usual loads."""
        worst = 0.0
        for sequences, each in ((4, 600), (16, 800), (48, 1000)):
            kv = sequences * each
            true = slowdown * self.time.ms(sequences, sequences, kv)
            worst = max(worst, abs(fit.step_ms(sequences, kv) / true - 1))
        return worst


@pytest.mark.parametrize(("gpu", "precision"), [("A100-80G", "fp16"), ("H100", "fp16"), ("T4", "int4")])
def test_it_finds_the_engine_s_speed_from_any_start(gpu, precision):
    engine, fit = Engine(), CostFit(table(gpu, precision))
    for k in range(60):
        fit.observe(engine.step(), 500.0 * k)
    assert engine.error(fit) < 0.10
    for k in range(60, 600):
        fit.observe(engine.step(), 500.0 * k)
    assert engine.error(fit) < 0.06


def test_a_gpu_that_throttles_shows_within_ten_seconds():
    engine, fit = Engine(), CostFit(table("A100-80G"))
    for k in range(300):
        fit.observe(engine.step(), 500.0 * k)
    for k in range(300, 320):
        fit.observe(engine.step(3.0), 500.0 * k)
    assert engine.error(fit, 3.0) < 0.10
    for k in range(320, 340):
        fit.observe(engine.step(), 500.0 * k)
    assert engine.error(fit) < 0.10


def test_single_wild_readings_move_little():
    engine, fit = Engine(), CostFit(table("A100-80G"))
    for k in range(300):
        fit.observe(engine.step(20.0 if k % 20 == 19 else 1.0), 500.0 * k)
    assert engine.error(fit) < 0.12


def test_what_cannot_be_is_left_out():
    fit = CostFit(table("A100-80G"))
    before = fit.cost()
    for ms in (0.0, -5.0, math.nan, math.inf):
        fit.observe(Step(ms, 10, 1000, 0, 0.04), 0)
    fit.observe(Step(10.0, 0, 0, 0, 0.04), 0)
    assert fit.cost() == before
    assert fit.observations == 0


def test_the_uncertainty_falls_with_looks_and_grows_with_silence():
    engine, fit = Engine(), CostFit(table("A100-80G"))
    first = fit.uncertainty()["base"]
    for k in range(100):
        fit.observe(engine.step(), 500.0 * k)
    known = fit.uncertainty()["base"]
    assert known < 0.2 * first
    fit.observe(engine.step(), 100_000_000.0)
    assert fit.uncertainty()["base"] <= first


def test_no_reading_makes_a_coefficient_absurd():
    fit, source = CostFit(table("A100-80G")), random.Random(3)
    for k in range(2000):
        step = Step(10 ** source.uniform(-3, 6), source.uniform(1, 500), 10 ** source.uniform(0, 7), 0, 0.04)
        fit.observe(step, 500.0 * k)
        cost = fit.cost()
        assert all(math.isfinite(value) and value >= 0 for value in cost.model_dump().values())
        assert cost.base > 0


def test_a_steady_load_changes_only_the_common_speed():
    fit = CostFit(table("A100-80G"))
    start = fit.start
    ms = 2 * (start.base + 10 * start.per_sequence + 8000 * start.per_kv_token)
    for k in range(200):
        fit.observe(Step(ms, 10, 8000, 0, 0.04), 500.0 * k)
    assert fit.factor(10, 8000) == pytest.approx(2, rel=0.02)
    assert fit.cost().per_kv_token / start.per_kv_token == pytest.approx(2, rel=0.35)


def test_prompts_that_seem_to_cost_nothing_are_not_believed() -> None:
    fit = CostFit(Cost(prefill=0.06, base=10.0, per_sequence=0.1, per_kv_token=1e-4))
    for k in range(400):
        tokens = 1500.0 if k % 2 else 0.0
        fit.observe(Step(12.0, 4.0, 20_000.0, tokens, 0.04), 1000.0 * k)
    cost = fit.cost()
    assert cost.prefill >= 0.4 * 0.06 * cost.base / 10.0
