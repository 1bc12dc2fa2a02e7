"""`lua/tokenweir/core/prediction/cues.lua`."""

from __future__ import annotations

import pytest

from tests.unit.lua.readers import CORE, of_text

CUES = CORE.require("tokenweir.core.prediction.cues")
NAMES = [name.decode() for name in CUES.NAMES.values()]


@pytest.mark.parametrize(
    ("text", "cue"),
    [
        ("Answer briefly", "brief"),
        ("in one word", "brief"),
        ("请简短回答", "brief"),
        ("a detailed account", "long"),
        ("请详细说明", "long"),
        ("Write an essay about rain", "essay"),
        ("写一篇关于春天的文章", "essay"),
        ("LIST the planets", "list"),
        ("列举几种水果", "list"),
        ("Translate this", "translate"),
        ("翻译成英文", "translate"),
        ("Summarize the text", "summary"),
        ("总结以下内容", "summary"),
        ("yes or no?", "choice"),
        ("是否正确", "choice"),
        ("a Python function", "code"),
        ("编写代码", "code"),
        ("Explain why", "explain"),
        ("为什么", "explain"),
        ("step by step", "steps"),
        ("as JSON", "format"),
        ("fix my grammar", "rewrite"),
        ("how many apples", "math"),
        ("classify the sentiment", "classify"),
        ("Hello", "greeting"),
        ("What is love", "fact"),
        ("create a logo", "create"),
        ("Pretend to be a cat", "role"),
    ],
)
def test_a_cue_is_found(text: str, cue: str) -> None:
    assert of_text(text)[f"cue_{cue}"] >= 1


def test_every_cue_has_a_sentence_here_and_a_feature() -> None:
    assert {f"cue_{name}" for name in NAMES} <= set(CORE.names)


def test_a_plain_text_cues_nothing() -> None:
    found = of_text("Purple elephants dance under moonlight")
    assert not any(found[f"cue_{name}"] for name in NAMES)


def test_half_of_a_pair_is_no_cue() -> None:
    assert of_text("my step")["cue_steps"] == 0


def test_a_cue_that_is_repeated_does_not_count_without_end() -> None:
    assert of_text("briefly " * 50)["cue_brief"] == 4
