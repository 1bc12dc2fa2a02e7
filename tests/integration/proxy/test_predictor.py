"""The predictor in a gateway: a model is taken into service, checked, learned by, and recorded for
training."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from model import export, records, training
from model.core import Core
from model.publication import Publication
from model.records import recorded_row
from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import quickest, wait_until
from tests.integration.upstream import Answer, Upstream
from tokenweir.contract import names
from tokenweir.contract.records import Histories, History

SOON_S = 2.0
"""A published model is live in every worker within this time."""
OPTIONS = training.Options(median_trees=12, lower_trees=8, upper_trees=10, leaves=8, rate=0.4, outer_rate=0.4)
LONG = "Write a long detailed essay about the sea."
SHORT = "Is it? Answer yes or no, in one word."
ALL = {"predictor": {"sample": 1.0}}


@pytest.fixture(scope="module")
def core() -> Core:
    return Core()


@pytest.fixture(scope="module")
def documents(core: Core, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two models of requests whose length is told by what they ask for."""
    folder = tmp_path_factory.mktemp("models")
    made = {}
    for name, long_tokens in (("first", 500), ("second", 700)):
        path = folder / f"{name}.jsonl"
        rows = []
        for number in range(1200):
            long = number % 2 == 0
            # Fillers, so that the size of a prompt tells nothing.
            text = "well " * (number % 37) + f"{LONG if long else SHORT} Subject{number % 149}."
            body = {"model": "llama", "messages": [{"role": "user", "content": text}]}
            rows.append(json.dumps({"body": body, "output": (long_tokens if long else 5) + number % 7}))
        path.write_text("\n".join(rows))
        data = records.load(path, core).data
        fitted = training.fit(data, core, OPTIONS)
        made[name] = export.envelope(export.payload(fitted, core, data, name, {}), core)
    return made


@pytest.fixture
def publication(gateway: Gateway) -> Publication:
    return Publication(gateway.redis)


def serves(gateway: Gateway, version: str) -> bool:
    """Whether every worker has this model in service."""
    lines = (line.split() for line in gateway.page("applied").splitlines())
    applied = {int(pid): value for pid, name, value in lines if name == "predictor_model"}
    return all(applied.get(pid) == version for pid in gateway.workers())


def wait_for(gateway: Gateway, version: str, seconds: float = 30) -> None:
    wait_until(lambda: serves(gateway, version), seconds, f"the predictor {version}")


def test_before_a_model_is_published_running_figures_serve(gateway: Gateway) -> None:
    assert gateway.metric("tokenweir_predictor", version="running") == 1
    gateway.post()
    assert gateway.completions()[0]["predictor"] == "running"


def test_a_published_model_is_live_in_every_worker_soon(
    gateway: Gateway, publication: Publication, documents: dict[str, str]
) -> None:
    names_of = itertools.cycle(["second", "first"])

    def publish() -> float:
        for name in (next(names_of), next(names_of)):
            publication.publish(name, documents[name])
            began = time.monotonic()
            wait_for(gateway, name)
        return time.monotonic() - began

    assert quickest(publish, enough=SOON_S) < SOON_S
    assert gateway.metric("tokenweir_predictor", version="first") == 1
    gateway.post()
    wait_until(lambda: gateway.completions()[-1]["predictor"] == "first", what="a record of the model")


def test_the_answer_says_what_the_model_predicts(
    gateway: Gateway, publication: Publication, documents: dict[str, str]
) -> None:
    publication.publish("first", documents["first"])
    wait_for(gateway, "first")

    def predicted(text: str, **members: Any) -> int:
        answer = gateway.post(messages=[{"role": "user", "content": text}], **members)
        return int(answer.headers["X-Tokenweir-Predicted-Tokens"])

    assert predicted(SHORT) < predicted(LONG) / 3
    assert predicted(LONG, max_tokens=5) <= 5


def test_a_gateway_is_told_what_came_out_for_a_system_prompt(
    gateway: Gateway, publication: Publication, documents: dict[str, str], core: Core
) -> None:
    publication.publish("first", documents["first"])
    wait_for(gateway, "first")
    messages = [{"role": "system", "content": "Be thorough."}, {"role": "user", "content": LONG}]
    body = json.dumps({"model": "llama", "messages": messages}).encode()
    number = int(core.read(["chat"], [body]).system[0])

    def predicted() -> int:
        return int(gateway.post(messages=messages).headers["X-Tokenweir-Predicted-Tokens"])

    def knows() -> bool:
        lines = [line.split() for line in gateway.page("applied").splitlines()]
        told = {int(pid) for pid, name, _ in lines if name == "histories"}
        return told >= set(gateway.workers())

    before = predicted()
    row = History(of="system", model="llama", number=number, count=50, mean=9.0, variance=0.1)
    gateway.redis.set(names.HISTORIES, Histories(version=1, rows=[row]).dump())
    wait_until(knows, 30, "the histories")
    assert predicted() > 2 * before


def test_a_recorded_completion_says_whose_it_is_and_what_was_learned(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], ALL)
    gateway.post(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": SHORT}])
    wait_until(lambda: len(gateway.completions()) == 1, what="a record")
    record = gateway.completions()[0]
    assert record["system_number"] > 0
    assert record["key_number"] == 0
    assert record["learned"] == pytest.approx(math.log1p(record["output"]), abs=1e-3)


def test_no_request_fails_while_models_change(
    gateway: Gateway, publication: Publication, documents: dict[str, str]
) -> None:
    for version in ("first", "second", "first"):
        publication.publish(version, documents[version])
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            assert gateway.post().status_code == 200
    assert "keeps its old" not in gateway.error_log()


def test_going_back_puts_the_model_before_into_service(
    gateway: Gateway, publication: Publication, documents: dict[str, str]
) -> None:
    for version in ("first", "second"):
        publication.publish(version, documents[version])
        wait_for(gateway, version)
    assert publication.roll_back() == "first"
    wait_for(gateway, "first")


@pytest.mark.parametrize(
    ("reason", "damage"),
    [
        ("checksum", lambda document: document | {"payload": document["payload"][:-10]}),
        ("schema", lambda document: document | {"schema": 99}),
        ("value", lambda document: {"schema": 1, "version": "second"}),
    ],
)
def test_a_model_that_cannot_be_right_is_refused_and_the_old_one_serves_on(
    gateway: Gateway,
    publication: Publication,
    documents: dict[str, str],
    reason: str,
    damage: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    publication.publish("first", documents["first"])
    wait_for(gateway, "first")
    publication.publish("second", json.dumps(damage(json.loads(documents["second"]))))

    def refused() -> float:
        return gateway.metric("tokenweir_documents_refused_total", document="predictor_model", reason=reason)

    wait_until(lambda: refused() >= 1, what="the refusal")
    time.sleep(1.5)
    assert refused() == 1
    assert serves(gateway, "first")
    assert gateway.post().status_code == 200


def test_a_gateway_that_starts_without_redis_predicts_by_the_last_model(
    gateway: Gateway, publication: Publication, documents: dict[str, str], redis_server: Any
) -> None:
    publication.publish("first", documents["first"])
    wait_for(gateway, "first")
    gateway.stop()
    redis_server.stop()
    gateway.start()
    wait_for(gateway, "first")


def test_predictions_follow_what_comes_out(gateway: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(tokens=400)

    def predicted() -> int:
        return int(gateway.post().headers["X-Tokenweir-Predicted-Tokens"])

    first = predicted()
    # Each worker learns by itself, and one of them may get most of the requests.
    for _ in range(400):
        last = predicted()
        if last == pytest.approx(400, rel=0.25):
            break
    assert abs(last - 400) < abs(first - 400)
    assert last == pytest.approx(400, rel=0.25)


def test_prompt_tokens_follow_what_the_engine_counts(gateway: Gateway) -> None:
    for _ in range(60):
        gateway.post(messages=[{"role": "user", "content": "some words of a prompt " * 200}])
    seen = gateway.completions(60)
    estimates = [record["prompt_estimate"] for record in seen]
    assert min(estimates) < max(estimates) / 2
    assert seen[-1]["prompt"] < min(estimates)


def test_records_carry_the_features_that_were_predicted_from(
    start_gateway: Callable[..., Gateway], upstream: Upstream, core: Core
) -> None:
    gateway = start_gateway([backend(upstream)], ALL, workers=1)
    body = {"model": "llama", "messages": [{"role": "user", "content": "List 10 facts"}], "max_tokens": 77}
    gateway.post(body=json.dumps(body).encode())
    record = gateway.completions()[0]
    row = {
        **record,
        "ending": "stop",
        "limit": record["max_tokens"],
    }
    found = recorded_row(row, core)
    assert not isinstance(found, str), found
    vector, words = found
    alone = core.read(["chat"], [json.dumps(body).encode()])
    assert vector[core.past : -1].tolist() == alone.vectors[0, core.past : -1].tolist()
    assert words.tolist() == alone.words.index.tolist()


def test_a_body_in_a_file_has_the_features_of_one_in_memory(
    start_gateway: Callable[..., Gateway], upstream: Upstream, core: Core
) -> None:
    gateway = start_gateway([backend(upstream)], ALL, workers=1, limits={"body_memory": "16KiB"})
    body = {"model": "llama", "messages": [{"role": "user", "content": "words of a story " * 3000}]}
    text = json.dumps(body).encode()
    assert gateway.post(body=text).status_code == 200
    record = gateway.completions()[0]
    found = recorded_row({**record, "ending": "stop", "limit": None}, core)
    assert not isinstance(found, str), found
    alone = core.read(["chat"], [text])
    assert found[0][core.past : -1].tolist() == alone.vectors[0, core.past : -1].tolist()
    assert found[1].tolist() == alone.words.index.tolist()


@pytest.mark.parametrize(
    ("settings", "vector", "words"),
    [
        ({"record": False, "sample": 1.0}, False, False),
        ({"sample": 0.0}, False, False),
        ({"sample": 1.0, "words": False}, True, False),
        ({"sample": 1.0}, True, True),
    ],
)
def test_what_is_recorded_can_be_turned_off(
    start_gateway: Callable[..., Gateway],
    upstream: Upstream,
    settings: dict[str, Any],
    vector: bool,
    words: bool,
) -> None:
    gateway = start_gateway([backend(upstream)], {"predictor": settings})
    gateway.post()
    record = gateway.completions()[0]
    assert (bool(record["vector"]), bool(record["words"])) == (vector, words)


def test_a_disabled_predictor_leaves_running_figures(
    start_gateway: Callable[..., Gateway], upstream: Upstream, documents: dict[str, str]
) -> None:
    gateway = start_gateway([backend(upstream)], {"predictor": {"enabled": False}})
    Publication(gateway.redis).publish("first", documents["first"])
    wait_for(gateway, "first")
    gateway.post()
    assert gateway.completions()[0]["predictor"] == "running"
    assert gateway.metric("tokenweir_predictor", version="running") == 1


def test_predicted_and_measured_tokens_are_counted(gateway: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(tokens=30)
    gateway.post()
    gateway.expect(30, "tokenweir_measured_output_tokens_total", model="llama")
    assert gateway.metric("tokenweir_predicted_output_tokens_total", model="llama") > 0


def test_no_word_of_a_prompt_is_in_a_record(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], ALL)
    gateway.post(messages=[{"role": "user", "content": "xylophone quixotic"}])
    gateway.completions()
    entries: Any = gateway.redis.xrange("tw:completions")
    assert "xylophone" not in str(entries)
