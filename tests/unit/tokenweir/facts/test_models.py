"""The model table."""

import pytest

from tokenweir import facts

PUBLISHED_PARAMETERS = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "mistral-7b": 7_241_732_096,
    "smollm2-135m": 134_515_008,
}
PUBLISHED_KV_BYTES = {
    "llama-2-7b": 524_288,
    "llama-2-13b": 819_200,
    "llama-2-70b": 327_680,
    "llama-3-8b": 131_072,
    "gpt-3-175b": 4_718_592,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED_PARAMETERS.items())
def test_the_shape_gives_the_published_number_of_parameters(name: str, count: int) -> None:
    assert facts.model(name).parameters == count


@pytest.mark.parametrize(("name", "size"), PUBLISHED_KV_BYTES.items())
def test_the_shape_gives_the_known_kv_bytes_of_a_token(name: str, size: int) -> None:
    assert facts.model(name).kv_bytes_per_token == size


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("Llama-2-7b-chat-hf", "llama-2-7b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"),
    ],
)
def test_a_model_is_found_with_an_organisation_before_and_a_suffix_behind(spelling: str, name: str) -> None:
    assert facts.model(spelling).name == name


def test_an_unknown_model_is_named_together_with_the_known_ones() -> None:
    with pytest.raises(facts.UnknownFactError, match=r"unknown model 'llama-3-80b'; known: .*llama-3-8b"):
        facts.model("llama-3-80b")


def test_weights_shrink_with_the_precision_but_not_the_embeddings() -> None:
    model = facts.model("llama-3-8b")
    assert model.weights_gb("fp16") == pytest.approx(16.06, abs=0.01)
    assert model.weights_gb("bf16") == model.weights_gb("fp16")
    # The published AWQ checkpoints of this model are 5.7 GB.
    assert model.weights_gb("int4") == pytest.approx(5.73, abs=0.05)
    assert model.weights_gb("int4") < model.weights_gb("fp8") < model.weights_gb("fp16")


def test_an_unknown_precision_is_named_together_with_the_known_ones() -> None:
    with pytest.raises(facts.UnknownFactError, match=r"unknown precision 'fp3'; known: .*fp16"):
        facts.precision("fp3")
