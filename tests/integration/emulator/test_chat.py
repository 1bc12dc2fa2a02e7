"""`/v1/chat/completions`."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.integration.emulator.conftest import MODEL, Running, Start

HELLO: list[Any] = [{"role": "user", "content": "hello there"}]


async def test_an_answer_has_the_ordered_length_and_says_so(running: Running) -> None:
    body = (await running.chat(7)).json()
    assert body["usage"]["completion_tokens"] == 7
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + 7
    assert len(body["choices"][0]["message"]["content"]) == 28
    assert body["choices"][0]["finish_reason"] == "stop"


async def test_the_official_sdk_reads_an_answer(running: Running) -> None:
    answer = await running.openai().chat.completions.create(model=MODEL, messages=HELLO, max_tokens=9)
    assert answer.choices[0].finish_reason in ("length", "stop")
    assert answer.usage and answer.usage.completion_tokens <= 9


async def test_the_official_sdk_reads_a_stream_of_one_event_a_token(running: Running) -> None:
    stream = await running.openai().chat.completions.create(
        model=MODEL,
        messages=HELLO,
        stream=True,
        stream_options={"include_usage": True},
        extra_headers={"X-Emulator-Output-Tokens": "6"},
    )
    chunks = [chunk async for chunk in stream]
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert len([piece for piece in pieces if piece]) == 6
    assert chunks[-1].usage and chunks[-1].usage.completion_tokens == 6
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"


async def test_stream_and_whole_answer_have_the_same_text(running: Running) -> None:
    whole = (await running.chat(12, seed=4)).json()["choices"][0]["message"]["content"]
    lines = (await running.chat(12, seed=4, stream=True)).text.split("\n\n")
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == whole
    assert lines[-2] == "data: [DONE]"


async def test_usage_is_streamed_only_when_asked_for(running: Running) -> None:
    assert '"usage"' not in (await running.chat(3, stream=True)).text
    assert '"usage"' in (await running.chat(3, stream=True, stream_options={"include_usage": True})).text


async def test_max_tokens_ends_an_answer_with_length(running: Running) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        choice = (await running.chat(50, **{name: 4})).json()["choices"][0]
        assert (choice["finish_reason"], len(choice["message"]["content"])) == ("length", 16)


async def test_stop_ends_an_answer_before_the_stop_text(running: Running) -> None:
    content = (await running.chat(40, seed=1)).json()["choices"][0]["message"]["content"]
    stop = content[21:26]
    body = (await running.chat(40, seed=1, stop=[stop, "never there"])).json()
    assert body["choices"][0]["message"]["content"] == content[: content.index(stop)]
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] < 40


async def test_n_choices_differ_and_share_their_prompt(running: Running) -> None:
    body = (await running.chat(8, n=3)).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in body["choices"]}) == 3
    assert body["usage"]["completion_tokens"] == 24
    assert body["usage"]["prompt_tokens"] == (await running.chat(8)).json()["usage"]["prompt_tokens"]


async def test_the_same_prompt_and_seed_give_the_same_answer(running: Running) -> None:
    async def content(seed: int) -> str:
        body = {"model": MODEL, "messages": HELLO, "seed": seed}
        answer = (await running.client.post("/v1/chat/completions", json=body)).json()
        return str(answer["choices"][0]["message"]["content"])

    assert await content(1) == await content(1) != await content(2)


async def test_tools_and_images_are_accepted(running: Running) -> None:
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    response = await running.chat(3, messages=[{"role": "user", "content": parts}], tools=tools)
    assert response.json()["usage"]["prompt_tokens"] > 576


async def test_logprobs_come_when_asked_for(running: Running) -> None:
    choice = (await running.chat(3, logprobs=True)).json()["choices"][0]
    assert len(choice["logprobs"]["content"]) == 3
    assert (await running.chat(3)).json()["choices"][0]["logprobs"] is None


async def test_a_next_turn_finds_the_last_one_in_the_prefix_cache(running: Running) -> None:
    opening = {"role": "user", "content": "tell me a long story about the sea " * 20}
    first = (await running.chat(100, messages=[opening])).json()
    reply = {"role": "assistant", "content": first["choices"][0]["message"]["content"]}
    again = (await running.chat(5, messages=[opening, reply, {"role": "user", "content": "more"}])).json()
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    # All full blocks of the first turn, prompt and answer.
    assert cached == (first["usage"]["total_tokens"] - 1) // 16 * 16


@pytest.mark.parametrize(
    ("change", "status", "code", "param"),
    [
        ({"model": "gpt-4"}, 404, "model_not_found", "model"),
        ({"messages": []}, 400, "invalid_type", "messages"),
        ({"messages": "hello"}, 400, "invalid_type", "messages"),
        ({"max_tokens": 0}, 400, "invalid_value", "max_tokens"),
        ({"max_tokens": 1_000_000}, 400, "context_length_exceeded", "max_completion_tokens"),
        ({"n": "two"}, 400, "invalid_type", "n"),
        ({"temperature": 3}, 400, "invalid_value", "temperature"),
        ({"stream": "yes"}, 400, "invalid_type", "stream"),
        ({"stream_options": {"include_usage": True}}, 400, "invalid_value", "stream_options"),
    ],
)
async def test_a_wrong_parameter_is_named(
    running: Running, change: dict[str, Any], status: int, code: str, param: str
) -> None:
    response = await running.chat(3, **change)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (status, code, param)
    assert (await running.executed())["total"] == 0


async def test_a_lone_surrogate_is_a_character_like_others(running: Running) -> None:
    body = b'{"model": "llama-3-8b", "messages": [{"role": "user", "content": "half a pair: \\ud800"}]}'
    answer = await running.client.post("/v1/chat/completions", content=body)
    assert answer.status_code == 200


async def test_a_body_that_is_no_json_is_refused(running: Running) -> None:
    response = await running.client.post("/v1/chat/completions", content=b'{"model": ')
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")


async def test_a_prompt_longer_than_the_context_is_refused_with_the_numbers(start: Start) -> None:
    running = await start(max_model_len=64)
    response = await running.chat(3, messages=[{"role": "user", "content": "word " * 100}])
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "maximum context length is 64 tokens" in error["message"]


async def test_a_key_is_asked_for_where_one_is_set(start: Start) -> None:
    running = await start(api_key="secret")
    assert (await running.chat(3)).status_code == 401
    with pytest.raises(openai.AuthenticationError):
        await running.openai("wrong").models.list()
    assert [model.id async for model in running.openai("secret").models.list()] == [MODEL]
    assert (await running.client.get("/health")).status_code == 200


async def test_a_stream_is_paced_by_the_engine(start: Start) -> None:
    running = await start(speed=1.0)
    loop_time = running.server.clock
    begin = loop_time.now()
    times = []
    body = {"model": MODEL, "messages": HELLO, "stream": True}
    headers = {"X-Emulator-Output-Tokens": "20"}
    async with running.client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
        async for line in response.aiter_lines():
            if '"content":"' in line and '"content":""' not in line:
                times.append(loop_time.now() - begin)
    step = running.server.engine.pace.step(1, 1, 20, 0)
    # A token each step, and what the scheduler of this machine adds.
    assert all(at >= (i + 1) * step * 0.9 for i, at in enumerate(times))
    assert len(times) == 20
