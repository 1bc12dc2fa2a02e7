"""What a client gets through the gateway is what the engine itself answers."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import httpx
import openai
import pytest

from tests.integration.engines.conftest import MODEL, LlamaEngine, Tokenweir

pytestmark = pytest.mark.engine

# The engine's own prompt cache changes rounding, so both sides are asked without it. Unknown to OpenAI: also
# shows that members which Tokenweir does not know reach the engine.
EXACT: dict[str, Any] = {"cache_prompt": False}
CHAT: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Name three colours."}],
    "max_tokens": 24,
    "temperature": 0,
}


def direct(engine: LlamaEngine) -> openai.OpenAI:
    return openai.OpenAI(base_url=engine.url + "/v1", api_key="unused", max_retries=0, timeout=60)


def test_the_memory_of_an_engine_is_that_of_all_its_slots(tokenweir: Tokenweir) -> None:
    for backend in httpx.get(f"{tokenweir.admin_url}/api/backends").json():
        decision = backend["decision"]
        assert (decision["context"], decision["concurrency"], decision["capacity"]) == (1024, 4, 4096)


def test_a_chat_is_answered_as_the_engine_answers_it(
    engines: list[LlamaEngine], tokenweir: Tokenweir
) -> None:
    through = tokenweir.client().chat.completions.create(**CHAT, extra_body=EXACT)
    asked = direct(engines[0]).chat.completions.create(**CHAT, extra_body=EXACT)
    assert through.choices[0].message.content == asked.choices[0].message.content
    assert through.choices[0].finish_reason == asked.choices[0].finish_reason == "length"
    assert through.usage is not None and asked.usage is not None
    assert through.usage.model_dump() == asked.usage.model_dump()


def test_a_stream_carries_the_same_text_event_by_event(
    engines: list[LlamaEngine], tokenweir: Tokenweir
) -> None:
    def pieces(client: openai.OpenAI) -> tuple[list[str], Any, list[float]]:
        stream = client.chat.completions.create(
            **CHAT, extra_body=EXACT, stream=True, stream_options={"include_usage": True}
        )
        texts, usage, times = [], None, []
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                texts.append(chunk.choices[0].delta.content)
                times.append(time.monotonic())
            usage = chunk.usage or usage
        return texts, usage, times

    through, usage, times = pieces(tokenweir.client())
    asked, asked_usage, _ = pieces(direct(engines[0]))
    assert through == asked
    assert usage.completion_tokens == asked_usage.completion_tokens == 24
    assert times[-1] - times[0] > 0.05, "the events must arrive as they are made, not all at the end"


def test_completions_with_stop_and_seed(engines: list[LlamaEngine], tokenweir: Tokenweir) -> None:
    body: dict[str, Any] = {
        "model": MODEL,
        "prompt": "One, two, three, four,",
        "max_tokens": 16,
        "temperature": 0,
        "stop": ["\n"],
        "seed": 9007199254740993,
        "extra_body": EXACT,
    }
    through = tokenweir.client().completions.create(**body)
    asked = direct(engines[0]).completions.create(**body)
    assert through.choices[0].text == asked.choices[0].text
    assert through.choices[0].finish_reason == asked.choices[0].finish_reason


def test_tools_reach_the_engine_untouched(engines: list[LlamaEngine], tokenweir: Tokenweir) -> None:
    tool: Any = {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    body = {
        **CHAT,
        "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
        "tools": [tool],
    }
    through = tokenweir.client().chat.completions.create(**body, extra_body=EXACT)
    asked = direct(engines[0]).chat.completions.create(**body, extra_body=EXACT)
    assert through.choices[0].message.model_dump() == asked.choices[0].message.model_dump()
    assert through.usage is not None and asked.usage is not None
    assert through.usage.prompt_tokens == asked.usage.prompt_tokens, "the tools are part of the prompt"


def test_the_models_are_listed(tokenweir: Tokenweir) -> None:
    assert [model.id for model in tokenweir.client().models.list()] == [MODEL]


def test_an_unknown_model_is_a_404_that_names_what_exists(tokenweir: Tokenweir) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        tokenweir.client().chat.completions.create(**{**CHAT, "model": "gpt-9"})
    assert caught.value.code == "model_not_found"
    assert MODEL in str(caught.value)


def test_malformed_json_is_a_400(tokenweir: Tokenweir) -> None:
    answer = httpx.post(
        tokenweir.base_url + "/chat/completions", content=b'{"model": "smollm2", "messages": ['
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_curl_streams_and_says_where_it_went(tokenweir: Tokenweir) -> None:
    command = [
        "curl",
        "-sSiN",
        tokenweir.base_url + "/chat/completions",
        "-H",
        "Content-Type: application/json",
    ]
    answer = subprocess.run(
        [*command, "-d", json.dumps({**CHAT, "stream": True})],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    head, _, body = answer.replace("\r\n", "\n").partition("\n\n")
    assert head.startswith("HTTP/1.1 200")
    assert "x-tokenweir-backend: llama-" in head.lower()
    assert body.rstrip().endswith("data: [DONE]")


def test_the_engine_stops_when_the_client_of_a_stream_leaves(
    engines: list[LlamaEngine], tokenweir: Tokenweir
) -> None:
    stream = tokenweir.client().chat.completions.create(**{**CHAT, "max_tokens": 2000}, stream=True)
    next(iter(stream))
    assert sum(engine.busy() for engine in engines) == 1
    stream.close()
    left = time.monotonic()
    while sum(engine.busy() for engine in engines):
        assert time.monotonic() - left < 5, "the engine still generates for a client that left"
        time.sleep(0.02)
