"""Step times against the measured ones, and the policy's straight-line start values."""

import pytest

from tokenweir import facts

# Vidur, Llama-2-7B on an A100: medians of all operations of a layer x 32 (microsoft/vidur, MIT).
A100_MS = {
    1: 9.28,
    16: 9.18,
    64: 9.70,
    128: 12.24,
    192: 15.92,
    256: 17.81,
    512: 33.36,
    1024: 67.94,
    2048: 133.46,
}
H100_MS = {1: 5.5, 64: 5.9, 512: 2.9 + 0.020 * 512, 2048: 2.9 + 0.020 * 2048}


@pytest.mark.parametrize(("tokens", "measured"), A100_MS.items())
def test_a_step_on_an_a100_takes_the_measured_time_within_ten_percent(tokens: int, measured: float) -> None:
    assert facts.step_time("A100-80G", "llama-2-7b").matrices(tokens) == pytest.approx(measured, rel=0.10)


@pytest.mark.parametrize(("tokens", "measured"), H100_MS.items())
def test_a_step_on_an_h100_takes_the_measured_time_within_ten_percent(tokens: int, measured: float) -> None:
    assert facts.step_time("H100", "llama-2-7b").matrices(tokens) == pytest.approx(measured, rel=0.10)


def test_a_step_on_an_rtx_4090_takes_the_measured_time() -> None:
    time = facts.step_time("RTX-4090", "llama-3.1-8b")
    assert 15 <= time.matrices(1) <= time.matrices(64) <= 17
    assert (time.matrices(2048) - time.matrices(512)) / 1536 == pytest.approx(0.088, rel=0.02)
    assert time.per_kv_token == pytest.approx(2.1e-4, rel=0.01)
    assert (time.scheduler, time.per_sequence) == (0.64, 0.0052)


def test_seventy_billion_parameters_on_eight_a100_take_the_measured_time() -> None:
    time = facts.step_time("A100-80G", "llama-2-70b", gpus=8)
    for sequences in (1, 16, 64):
        kv = sequences * 512
        measured = 43.6 + 0.197 * sequences + 4.1e-4 * kv
        assert time.ms(sequences, sequences, kv) == pytest.approx(measured, rel=0.05)


def test_a_t4_is_slower_than_an_l4_at_prompts_and_both_than_an_a100() -> None:
    costs = {name: facts.coefficients(name, "llama-3-8b", "int4") for name in ("T4", "L4", "A100", "H100")}
    assert costs["T4"].prefill > costs["L4"].prefill > costs["A100"].prefill > costs["H100"].prefill
    assert costs["L4"].base > costs["A100"].base > costs["H100"].base


def test_fp8_doubles_the_rate_only_where_the_cores_know_it() -> None:
    def gain(gpu: str) -> float:
        full, half = (facts.step_time(gpu, "llama-3-8b", p).per_token for p in ("fp16", "fp8"))
        return full / half

    assert gain("H100") == pytest.approx(2)
    assert gain("A100-80G") == pytest.approx(1)


@pytest.mark.parametrize("gpu", ["A100-80G", "H100", "RTX-4090", "T4"])
def test_the_straight_line_follows_the_curve_while_decoding(gpu: str) -> None:
    precision = "int4" if gpu == "T4" else "fp16"
    cost, time = (
        facts.coefficients(gpu, "llama-3-8b", precision),
        facts.step_time(gpu, "llama-3-8b", precision),
    )
    for n in (1, 16, 32, 64):
        line = cost.base + cost.per_sequence * n + cost.per_kv_token * n * 500
        assert line == pytest.approx(time.ms(n, n, n * 500), rel=0.08)


def test_attention_makes_long_prompts_more_than_linear() -> None:
    time = facts.step_time("A100-80G", "llama-3-8b")
    # A chunk of 2,048 tokens after 60,000 tokens of context: attention outweighs the matrices' rate.
    assert 2048 * 60_000 * time.attention > 0.5 * time.matrices(2048)
