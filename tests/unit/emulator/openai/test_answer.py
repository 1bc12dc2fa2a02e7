"""What the model will say."""

from typing import Any

import pytest

from emulator.openai.answer import Choice, choices
from emulator.openai.errors import ApiError
from emulator.openai.parameters import sampling
from emulator.openai.prompt import Prompt
from emulator.settings import Settings

SETTINGS = Settings(capacity=16_000, max_model_len=1000)
PROMPT = Prompt("x" * 400, 100)


def made(exact: int | None = None, **body: Any) -> list[Choice]:
    return choices(SETTINGS, PROMPT, sampling(body, ("max_tokens",), None), exact, "max_tokens")


def test_an_ordered_length_is_kept() -> None:
    (choice,) = made(exact=33)
    assert (choice.request.output, len(choice.text), choice.finish_reason) == (33, 132, "stop")


def test_the_context_ends_an_answer_with_length() -> None:
    (choice,) = made(exact=5000)
    assert (choice.request.output, choice.finish_reason) == (900, "length")


def test_ignore_eos_goes_on_to_the_limit() -> None:
    (choice,) = made(ignore_eos=True, max_tokens=77)
    assert (choice.request.output, choice.finish_reason) == (77, "length")


def test_min_tokens_are_reached() -> None:
    assert made(min_tokens=850)[0].request.output >= 850


def test_the_pieces_of_an_answer_make_its_text() -> None:
    (choice,) = made(exact=20)
    assert "".join(choice.piece(i) for i in range(20)) == choice.text


def test_a_stop_text_is_counted_but_not_shown() -> None:
    text = made(exact=50)[0].text
    (choice,) = made(exact=50, stop=[text[30:37]])
    at = text.index(text[30:37])
    assert choice.text == text[:at]
    assert choice.request.output == -(-(at + 7) // 4)
    assert "".join(choice.piece(i) for i in range(choice.request.output)) == choice.text


def test_the_first_of_several_stops_counts() -> None:
    text = made(exact=50)[0].text
    (choice,) = made(exact=50, stop=[text[60:70], text[10:20]])
    assert len(choice.text) <= 10


def test_hashes_cover_prompt_and_answer() -> None:
    assert len(made(exact=60)[0].request.hashes) == 160 // 16


def test_a_prompt_and_limit_beyond_the_context_are_refused() -> None:
    with pytest.raises(
        ApiError, match="you requested 1101 tokens \\(100 in the prompt, 1001 in the completion"
    ):
        made(max_tokens=1001)
