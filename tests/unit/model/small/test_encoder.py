"""`model/small/encoder.py`: the packaged weights and the forward pass."""

from __future__ import annotations

import numpy as np
import pytest

from model.small.encoder import MOST_TOKENS, SIZE, Encoder


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder()


@pytest.mark.parametrize(
    ("text", "similarity"),
    [
        ("That is a happy dog", 0.695),
        ("That is a very happy person", 0.943),
        ("Today is a sunny day", 0.257),
    ],
)
def test_sentences_are_as_near_to_each_other_as_the_model_card_says(
    encoder: Encoder, text: str, similarity: float
) -> None:
    found = encoder.encode("That is a happy person") @ encoder.encode(text)
    assert found == pytest.approx(similarity, abs=0.001)


def test_an_encoding_has_length_one(encoder: Encoder) -> None:
    for text in ("", "a", "很好", "word " * 5000):
        found = encoder.encode(text)
        assert found.shape == (SIZE,)
        assert np.linalg.norm(found) == pytest.approx(1, abs=1e-5)


def test_of_a_long_text_both_ends_count(encoder: Encoder) -> None:
    middle = "and so on " * MOST_TOKENS
    one = encoder.encode("Translate this. " + middle)
    other = encoder.encode(middle + " Translate this.")
    assert one @ encoder.encode("Translate this. " + middle + middle) > 0.98
    assert other @ encoder.encode(middle + middle + " Translate this.") > 0.98
