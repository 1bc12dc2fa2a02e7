"""`model/chats.py`."""

from __future__ import annotations

import json

import numpy as np

from model import chats
from model.recorded import Recorded, public_name
from tests.unit.model.conftest import Example

N = 400


def recorded() -> Recorded:
    """Forty prompts, each answered ten times by applications of two models."""
    rng = np.random.default_rng(1)
    prompt = np.repeat(np.arange(40), 10)
    variant = np.array([f"source/report-{k % 4}/k50" for k in range(N)])
    return Recorded(
        texts=[f"What is number {k}?" for k in range(40)],
        text_source=["source"] * 40,
        text_tokens=np.full(40, 5),
        source=np.full(N, "source"),
        prompt=prompt,
        model=np.array([f"model-{k % 2}" for k in range(N)]),
        variant=variant,
        config=np.full(N, "k50"),
        output=rng.integers(1, 3000, N).astype(np.float64),
        characters=rng.integers(1, 900, N).astype(np.float64),
    )


def test_a_report_names_the_model_behind_it() -> None:
    assert public_name("2023-04-16_gpt-4_sample") == "gpt-4"
    assert public_name("2023-07-18_meta-llama_Llama-2-7b-hf_sampling_llama2_prompt") == (
        "meta-llama_Llama-2-7b-hf"
    )


def test_a_seed_makes_the_same_stream_again(example: Example) -> None:
    first, second = (chats.stream(example.core, recorded(), 3) for _ in range(2))
    assert (first[0].vectors == second[0].vectors).all()
    assert (first[1].arrival == second[1].arrival).all()


def test_every_application_has_a_key_and_a_system_prompt_where_all_are_known(example: Example) -> None:
    _, stream = chats.stream(example.core, recorded(), 3, known=1.0)
    assert (stream.key > 0).all()
    assert len(np.unique(stream.key)) == 4


def test_single_prompts_have_no_past(example: Example) -> None:
    requests, stream = chats.stream(example.core, recorded(), 3, histories=False)
    assert not stream.key.any()
    assert not stream.system.any()
    assert not stream.session.any()
    messages = requests.vectors[:, example.core.names.index("messages")]
    assert np.allclose(np.expm1(messages), 1)


def test_outputs_never_exceed_their_limit_and_say_that_it_cut_them(example: Example) -> None:
    _, stream = chats.stream(example.core, recorded(), 3)
    limited = stream.limit >= 0
    assert (stream.output[limited] <= stream.limit[limited]).all()
    assert ((stream.ending == 1) == (stream.output < recorded().output)).all()


def test_a_later_turn_repeats_what_was_said_before() -> None:
    app = chats.Application("k", "Be kind.", {}, [], 100, "chat", 3.0)
    found = json.loads(chats.body("m", app, [("Hi", 10)], "And?"))
    assert [message["role"] for message in found["messages"]] == ["system", "user", "assistant", "user"]
    assert len(found["messages"][2]["content"]) == 10
    assert found["max_tokens"] == 100


def test_responses_and_completions_are_asked_in_their_own_shape() -> None:
    app = chats.Application("k", "Be kind.", {}, [], 100, "responses", 1.0)
    found = json.loads(chats.body("m", app, [], "Hi"))
    assert (found["instructions"], found["max_output_tokens"]) == ("Be kind.", 100)
    app = chats.Application("k", None, {}, [], None, "completions", 1.0)
    assert json.loads(chats.body("m", app, [], "Hi")) == {"model": "m", "prompt": "Hi"}
