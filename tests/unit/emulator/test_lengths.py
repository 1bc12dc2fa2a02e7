"""Output lengths that nobody orders."""

from statistics import mean, median

import pytest

from emulator import lengths


def test_lengths_follow_the_azure_conversation_trace() -> None:
    drawn = [lengths.drawn(lengths.key(f"prompt {i}", None, 0, 0)) for i in range(4000)]
    assert median(drawn) == pytest.approx(151, rel=0.1)
    assert mean(drawn) == pytest.approx(211, rel=0.1)
    assert 1 <= min(drawn) <= max(drawn) <= 1000


def test_every_key_gives_a_length() -> None:
    assert lengths.drawn(0) >= 1
    assert lengths.drawn(2**64 - 1) == 1000


def test_the_key_depends_on_prompt_seed_choice_and_server() -> None:
    keys = {
        lengths.key("a", None, 0, 0),
        lengths.key("b", None, 0, 0),
        lengths.key("a", 1, 0, 0),
        lengths.key("a", None, 1, 0),
        lengths.key("a", None, 0, 1),
    }
    assert len(keys) == 5
    assert lengths.key("a", 1, 0, 0) == lengths.key("a", 1, 0, 0)
