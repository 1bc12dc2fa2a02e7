"""Completions, embeddings, responses, models."""

from __future__ import annotations

import math

import openai
import pytest

from tests.integration.emulator.conftest import MODEL, Running, Start


async def test_a_completion_has_sixteen_tokens_unless_told(running: Running) -> None:
    answer = await running.openai().completions.create(
        model=MODEL, prompt="once upon a time", extra_headers={"X-Emulator-Output-Tokens": "100"}
    )
    assert answer.usage and answer.usage.completion_tokens == 16
    assert answer.choices[0].finish_reason == "length"


async def test_a_completion_streams(running: Running) -> None:
    stream = await running.openai().completions.create(
        model=MODEL, prompt="once upon a time", max_tokens=5, stream=True, extra_body={"ignore_eos": True}
    )
    chunks = [chunk async for chunk in stream]
    assert len([chunk for chunk in chunks if chunk.choices[0].text]) == 5


async def test_several_prompts_make_several_choices(running: Running) -> None:
    answer = await running.openai().completions.create(model=MODEL, prompt=["one", "two"], n=2, max_tokens=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]


async def test_a_prompt_of_tokens_has_their_number(running: Running) -> None:
    answer = await running.openai().completions.create(model=MODEL, prompt=[5, 6, 7], max_tokens=2)
    assert answer.usage and answer.usage.prompt_tokens == 3


async def test_embeddings_are_unit_vectors_that_depend_on_the_text(running: Running) -> None:
    client = running.openai()
    answer = await client.embeddings.create(model=MODEL, input=["a", "b", "a"], dimensions=64)
    first, second, third = (item.embedding for item in answer.data)
    assert len(first) == 64
    assert math.hypot(*first) == pytest.approx(1, abs=1e-5)
    assert first == third != second
    plain = await client.embeddings.create(model=MODEL, input="a", dimensions=64, encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(first, abs=1e-6)


async def test_a_response_is_made_remembered_continued_and_forgotten(running: Running) -> None:
    client = running.openai()
    first = await client.responses.create(model=MODEL, input="hello there", instructions="be brief")
    assert first.status == "completed"
    assert first.output_text
    assert (await client.responses.retrieve(first.id)).output_text == first.output_text
    second = await client.responses.create(model=MODEL, input="and then?", previous_response_id=first.id)
    assert first.usage and second.usage
    assert second.usage.input_tokens > first.usage.total_tokens
    await client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model=MODEL, input="x", previous_response_id=first.id)


async def test_a_response_streams_its_events_in_order(running: Running) -> None:
    stream = await running.openai().responses.create(
        model=MODEL, input="hello", stream=True, extra_headers={"X-Emulator-Output-Tokens": "4"}
    )
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created"
    assert kinds.count("response.output_text.delta") == 4
    assert kinds[-1] == "response.completed"


async def test_a_response_cut_by_its_limit_is_incomplete(running: Running) -> None:
    answer = await running.openai().responses.create(
        model=MODEL, input="hello", max_output_tokens=3, extra_headers={"X-Emulator-Output-Tokens": "9"}
    )
    assert answer.status == "incomplete"
    assert answer.incomplete_details and answer.incomplete_details.reason == "max_output_tokens"


async def test_models_lists_every_name_that_is_answered_to(start: Start) -> None:
    running = await start(served_names=("big", "alias"))
    body = (await running.client.get("/v1/models")).json()
    assert [model["id"] for model in body["data"]] == ["big", "alias"]
    assert body["data"][0]["max_model_len"] == 8192
    assert (await running.chat(2, model="alias")).json()["model"] == "alias"
    assert (await running.client.get("/v1/models/llama-3-8b")).status_code == 404


async def test_an_unknown_path_gets_an_openai_error(running: Running) -> None:
    response = await running.client.get("/v1/nothing")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_url")
