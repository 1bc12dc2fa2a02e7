"""`lua/tokenweir/core/answer/sse.lua` and `answer.lua`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.lua.answer.streams import CHAT, DONE, USAGE, Counter, chat, event


def test_a_chat_counts_the_events_with_content_and_takes_the_usage(counter: Counter) -> None:
    assert counter.count([CHAT]) == {
        "events": 3,
        "data_events": 7,
        "first": True,
        "done": True,
        "error": False,
        "finish_reason": "stop",
        "prompt_tokens": 12,
        "completion_tokens": 3,
        "cached_tokens": 8,
    }


@pytest.mark.parametrize(
    ("delta", "counts"),
    [
        ({"content": "x"}, True),
        ({"content": "\\"}, True),
        ({"content": ""}, False),
        ({"content": None}, False),
        ({"role": "assistant"}, False),
        ({"reasoning_content": "hm", "content": None}, True),
        ({"reasoning": "hm"}, True),
        ({"refusal": "no"}, True),
        ({"content": [{"type": "text", "text": "x"}]}, True),
        (
            {
                "tool_calls": [
                    {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
                ]
            },
            True,
        ),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, True),
        ({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]}, False),
        ({"tool_calls": []}, False),
        ({"function_call": {"arguments": "x"}}, True),
        ({"unknown": "x"}, False),
    ],
)
def test_an_event_carries_output_when_a_text_of_its_delta_is_not_empty(
    counter: Counter, delta: dict[str, Any], counts: bool
) -> None:
    told = counter.count([event(chat(delta))])
    assert (told["events"], told["data_events"], told["first"]) == (int(counts), 1, counts)


def test_completions_count_their_text(counter: Counter) -> None:
    stream = b"".join(
        event({"choices": [{"index": 0, "text": t, "finish_reason": f}]})
        for t, f in [("a", None), ("", "length")]
    )
    told = counter.count([stream + DONE])
    assert (told["events"], told["data_events"], told["finish_reason"], told["done"]) == (
        1,
        2,
        "length",
        True,
    )


def test_several_choices_in_one_event_are_one_event(counter: Counter) -> None:
    both = {"choices": [{"index": 0, "text": "a"}, {"index": 1, "text": "b"}]}
    assert counter.count([event(both), event(both)])["events"] == 2


def test_the_responses_api_is_counted_by_its_deltas_and_ends_with_its_last_event(counter: Counter) -> None:
    usage = {"input_tokens": 7, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}
    stream = [
        event(
            {"type": "response.created", "response": {"status": "in_progress", "usage": None, "error": None}}
        ),
        event({"type": "response.output_item.added", "item": {"type": "message"}}),
        event(
            {"type": "response.output_text.delta", "sequence_number": 3, "delta": "Hi"},
            name="response.output_text.delta",
        ),
        event({"type": "response.output_text.delta", "sequence_number": 4, "delta": " you"}),
        event({"type": "response.function_call_arguments.delta", "delta": '{"a"'}),
        event({"type": "response.output_text.done", "text": "Hi you"}),
        event(
            {"type": "response.completed", "response": {"status": "completed", "usage": usage, "output": []}}
        ),
    ]
    assert counter.count(stream) == {
        "events": 3,
        "data_events": 7,
        "first": True,
        "done": True,
        "error": False,
        "finish_reason": "stop",
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "cached_tokens": 4,
    }


def test_a_response_cut_at_its_limit_finishes_by_length(counter: Counter) -> None:
    last = {
        "type": "response.incomplete",
        "response": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    }
    told = counter.count([event(last)])
    assert (told["finish_reason"], told["done"], told["error"]) == ("length", True, False)


@pytest.mark.parametrize(
    "stream",
    [
        event({"error": {"message": "out of memory", "code": 500}}),
        event({"error": "out of memory"}),
        event({"object": "error", "message": "out of memory"}),
        event({"message": "out of memory"}, name="error"),
        event({"type": "response.failed", "response": {"status": "failed"}}),
        event({"type": "error", "message": "out of memory"}),
        b'error: {"code":500}\n\n',
        b'data: {"message":"x"}\nevent: error\n\n',
    ],
)
def test_an_error_event_is_seen_in_every_form_that_engines_send(counter: Counter, stream: bytes) -> None:
    assert counter.count([event(chat({"content": "a"})), stream])["error"] is True


def test_a_null_error_is_none(counter: Counter) -> None:
    assert counter.count([event({**chat({"content": "a"}), "error": None})])["error"] is False


def test_the_last_usage_counts_when_each_event_has_one(counter: Counter) -> None:
    stream = [
        event({**chat({"content": "a"}), "usage": {"prompt_tokens": 5, "completion_tokens": k}})
        for k in range(1, 8)
    ]
    told = counter.count(stream)
    assert (told["events"], told["completion_tokens"], told["prompt_tokens"]) == (7, 7, 5)


def test_llama_cpp_timings_stand_in_for_absent_usage(counter: Counter) -> None:
    timings = {"prompt_n": 10, "cache_n": 90, "predicted_n": 4, "predicted_ms": 12.5}
    told = counter.count([event({**chat({}, finish="stop"), "timings": timings})])
    assert (told["prompt_tokens"], told["cached_tokens"], told["completion_tokens"]) == (100, 90, 4)
    told = counter.count([event({**chat({}), "timings": timings, "usage": USAGE})])
    assert (told["prompt_tokens"], told["cached_tokens"], told["completion_tokens"]) == (12, 8, 3)


@pytest.mark.parametrize("wrong", [-1, 1.5, 1e300, "7", None, [1], True])
def test_a_usage_that_is_no_count_is_ignored(counter: Counter, wrong: Any) -> None:
    told = counter.count([event({"choices": [], "usage": {"completion_tokens": wrong}})])
    assert told["completion_tokens"] is False


@pytest.mark.parametrize("reason", ["", "two words", 'a"b', "a\nb", "x" * 65, "é"])
def test_a_finish_reason_that_is_no_word_is_ignored(counter: Counter, reason: str) -> None:
    told = counter.count([event(chat({}, finish="tool_calls")), event(chat({}, finish=reason))])
    assert told["finish_reason"] == "tool_calls"


def test_words_of_the_protocol_inside_the_content_mean_nothing(counter: Counter) -> None:
    nasty = (
        'data: [DONE]\n\nevent: error\n{"error":{},"usage":{"completion_tokens":9},"finish_reason":"stop"}'
    )
    told = counter.count([event(chat({"content": nasty})), event(chat({"content": "b"}))])
    assert (told["events"], told["done"], told["error"]) == (2, False, False)
    assert (told["completion_tokens"], told["finish_reason"]) == (False, False)


def test_an_event_over_several_data_lines_is_one_event(counter: Counter) -> None:
    lines = json.dumps(chat({"content": "a"}, finish="stop"), indent=1).split("\n")
    stream = ("".join(f"data: {line}\n" for line in lines) + "\n").encode()
    told = counter.count([stream, DONE])
    assert (told["events"], told["data_events"], told["finish_reason"]) == (1, 1, "stop")


def test_comments_other_fields_and_data_that_is_no_json_are_not_output(counter: Counter) -> None:
    stream = b": ping\n\nid: 5\nretry: 10\n\ndata: hello\n\ndata:\n\ndata\n\nevent: ping\n\n" + event(
        chat({"content": "a"})
    )
    told = counter.count([stream])
    assert (told["events"], told["data_events"], told["error"]) == (1, 3, False)


def test_a_last_line_without_an_end_counts_when_the_stream_ends(counter: Counter) -> None:
    assert counter.count([b"data: [DONE]"])["done"] is True
    assert counter.count([event(chat({"content": "a"}), end="")])["events"] == 1


def test_an_event_without_a_space_after_the_colon_is_read(counter: Counter) -> None:
    told = counter.count([b'data:{"choices":[{"text":"a"}]}\n\ndata:[DONE]\n\n'])
    assert (told["events"], told["done"]) == (1, True)


def test_json_that_goes_on_outside_the_data_lines_is_not_read(counter: Counter) -> None:
    stream = b'data: {"choices":[{"text":\n"a"}]}\n\n'
    assert counter.count([stream])["events"] == 0
    assert counter.count(stream[k : k + 1] for k in range(len(stream)))["events"] == 0


@pytest.mark.parametrize("end", ["\n", "\r", "\n\n", "\r\r", "\r\n"])
def test_a_string_that_goes_on_in_another_line_is_not_read(counter: Counter, end: str) -> None:
    first = event(chat({"content": "a"}))
    head, tail = first.split(b'"a"')
    stream = first + head + b'"a' + end.encode() + b'b"' + tail
    whole = counter.count([stream])
    assert whole["events"] == 1
    assert counter.count(stream[k : k + 1] for k in range(len(stream))) == whole


def test_a_line_beyond_the_limit_is_counted_and_forgotten(counter: Counter) -> None:
    long = event(chat({"content": "x" * (5 * 1024 * 1024)}))
    chunks = [long[k : k + 65536] for k in range(0, len(long), 65536)]
    told = counter.count([*chunks, event(chat({"content": "a"})), DONE])
    assert (told["events"], told["data_events"], told["done"]) == (1, 2, True)
