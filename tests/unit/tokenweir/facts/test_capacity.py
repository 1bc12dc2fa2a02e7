"""KV capacity beside the weights."""

import pytest

from tokenweir import facts


def test_the_capacity_is_that_of_the_recorded_run_within_one_percent() -> None:
    assert facts.kv_capacity("RTX-4090", "llama-3.1-8b") == pytest.approx(41_408, rel=0.01)


def test_the_capacity_is_whole_blocks() -> None:
    assert facts.kv_capacity("A100-80G", "llama-3-8b") % facts.BLOCK == 0


def test_a_smaller_precision_leaves_more_room() -> None:
    assert facts.kv_capacity("L4", "llama-3-8b", "int4") > facts.kv_capacity("L4", "llama-3-8b", "fp16")


def test_several_gpus_share_the_weights() -> None:
    one, two = (
        facts.kv_capacity("A100-80G", "llama-2-13b"),
        facts.kv_capacity("A100-80G", "llama-2-13b", gpus=2),
    )
    assert two > 2 * one


def test_a_model_that_does_not_fit_is_refused_with_the_sizes() -> None:
    with pytest.raises(
        facts.DoesNotFitError, match=r"llama-3-8b at fp16 needs 16\.1 GB.*T4 offers 13\.\d GB"
    ):
        facts.kv_capacity("T4", "llama-3-8b")
