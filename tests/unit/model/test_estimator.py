"""`lua/tokenweir/core/prediction/estimator.lua`: predictions that follow what comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from model.core import ENDINGS, Core, Requests, Stream, Words
from tests.unit.model.conftest import Example


def requests(core: Core, count: int = 1, **features: float) -> Requests:
    """Requests without words, all alike but for what is given."""
    vectors = np.zeros((count, len(core.names)), np.float32)
    for name, value in features.items():
        vectors[:, core.names.index(name)] = value
    empty = Words(np.zeros(0, np.uint16), np.zeros(count, np.int32))
    return Requests(vectors, empty, *(np.zeros(count) for _ in range(4)))


def stream(output: Any, **given: Any) -> Stream:
    """Outputs one after the other; `given` replaces fields of the stream by a number or an array."""
    output = np.asarray(output, np.float64)
    n = len(output)
    fields: dict[str, Any] = {
        "request": np.zeros(n, np.int64),
        "model": np.zeros(n, np.int64),
        "fit": np.zeros(n, np.int64),
        "key": np.zeros(n),
        "system": np.zeros(n),
        "session": np.zeros(n),
        "message": np.zeros(n),
        "limit": np.full(n, -1.0),
        "ending": np.zeros(n, np.uint8),
    }
    names = given.pop("names", ["llm"])
    for name, value in given.items():
        fields[name] = np.broadcast_to(np.asarray(value, fields[name].dtype), n).copy()
    arrival = np.arange(n, dtype=np.float64)
    return Stream(names=names, output=output, arrival=arrival, finish=arrival + 0.5, **fields)


def lengths(median: float, count: int, seed: int, spread: float = 0.7) -> Any:
    return np.round(np.expm1(np.random.default_rng(seed).normal(np.log1p(median), spread, count)).clip(1))


def play(example: Example, of: Stream, state: Any = None, **features: float) -> Any:
    core = example.core
    state = core.new_state() if state is None else state
    return core.replay(state, [example.model], requests(core, **features), of)


def test_coverage_comes_back_within_500_completions_after_the_outputs_double(example: Example) -> None:
    before, after = lengths(100, 2000, 1), 2 * lengths(100, 1500, 2)
    said = play(example, stream(np.concatenate((before, after))))
    covered = np.concatenate((before, after)) <= said.q90
    assert 0.88 <= covered[1000:2000].mean() <= 0.92
    assert 0.85 <= covered[2500:].mean() <= 0.95


def test_the_sum_of_the_means_follows_the_outputs_when_they_double(example: Example) -> None:
    output = np.concatenate((lengths(100, 1500, 1), 2 * lengths(100, 1500, 2)))
    said = play(example, stream(output))
    assert said.mean[500:1500].sum() == pytest.approx(output[500:1500].sum(), rel=0.1)
    assert said.mean[2000:].sum() == pytest.approx(output[2000:].sum(), rel=0.15)


def test_a_model_that_is_new_is_followed_within_dozens_of_completions(example: Example) -> None:
    output = lengths(900, 200, 3, spread=0.3)
    said = play(example, stream(output, names=["never-seen"]))
    assert np.median(said.median[60:]) == pytest.approx(900, rel=0.25)


def test_a_model_of_a_known_family_starts_from_it(example: Example) -> None:
    prior = example.core.require("tokenweir.core.prediction.predictor").prior
    names = example.payload["prior"]["families"]
    family = next(name for name in names if name not in example.payload["prior"]["models"])
    assert prior(example.model, f"maker/{family}-9-99B-chat".encode())[0] == pytest.approx(names[family])
    assert prior(example.model, b"42-unheard-of")[0] == pytest.approx(example.payload["prior"]["mean"])


@pytest.mark.parametrize("scope", ["key", "system", "session"])
def test_what_a_key_a_system_prompt_or_a_session_got_before_tells(example: Example, scope: str) -> None:
    n = 400
    short = np.arange(n) % 2 == 0
    output = np.where(short, 20, 600).astype(np.float64)
    said = play(example, stream(output, **{scope: np.where(short, 101.0, 202.0)}))
    assert np.median(said.median[n // 2 :][short[n // 2 :]]) < 60
    assert np.median(said.median[n // 2 :][~short[n // 2 :]]) > 250


def test_a_system_prompt_that_goes_with_its_key_counts_once(example: Example) -> None:
    rng = np.random.default_rng(5)
    key = 1 + rng.integers(0, 40, 4000)
    output = lengths(100, 4000, 6) * np.exp(rng.normal(0, 0.3, 41))[key]
    alone = play(example, stream(output, key=key)).past[:, 0]
    both = play(example, stream(output, key=key, system=100 + key)).past[:, 0]
    assert np.abs(both - alone)[2000:].mean() < 0.1 * np.abs(alone - alone.mean())[2000:].mean()


def test_what_came_of_the_same_message_before_tells(example: Example) -> None:
    n = 600
    short = np.random.default_rng(3).random(n) < 0.5
    output = np.where(short, 60, 200).astype(np.float64)
    said = play(example, stream(output, message=np.where(short, 101.0, 202.0)))
    late = np.arange(n) > n // 2
    assert np.median(said.median[late & short]) < 0.8 * np.median(said.median[late & ~short])


def test_keys_of_one_name_under_two_models_are_two(example: Example) -> None:
    n = 400
    first = np.arange(n) % 2 == 0
    output = np.where(first, 20, 600).astype(np.float64)
    said = play(example, stream(output, names=["a", "b"], model=np.where(first, 0, 1), key=101.0))
    assert np.median(said.median[n // 2 :][first[n // 2 :]]) < 60


@pytest.mark.parametrize("limit", [1, 16, 100])
def test_nothing_is_predicted_beyond_the_limit(example: Example, limit: int) -> None:
    output = np.minimum(lengths(200, 300, 4), limit)
    ending = np.where(output == limit, ENDINGS["length"], ENDINGS["stop"])
    said = play(example, stream(output, limit=limit, ending=ending))
    for figure in (said.mean, said.median, said.q90):
        assert (figure <= limit + 1e-9).all()
        assert (figure >= 0).all()


def test_outputs_cut_by_their_limits_do_not_pull_down_those_without(example: Example) -> None:
    output = lengths(200, 1500, 5)
    limit = np.where(np.arange(1500) % 2 == 0, 50, -1)
    cut = (limit > 0) & (output > limit)
    got = np.where(cut, limit, output)
    ending = np.where(cut, ENDINGS["length"], ENDINGS["stop"])
    said = play(example, stream(got, limit=limit, ending=ending))
    free = np.flatnonzero(limit < 0)[300:]
    assert np.median(said.median[free]) == pytest.approx(np.median(output[free]), rel=0.2)
    assert 0.86 <= (output <= said.q90)[free].mean() <= 0.94


def test_clients_that_leave_do_not_pull_the_predictions_down(example: Example) -> None:
    output = lengths(200, 1500, 6)
    left = np.arange(1500) % 3 == 0
    got = np.where(left, np.minimum(output, 10), output)
    ending = np.where(left, ENDINGS["cut"], ENDINGS["stop"])
    said = play(example, stream(got, ending=ending))
    rest = np.flatnonzero(~left)[300:]
    assert said.mean[rest].sum() == pytest.approx(output[rest].sum(), rel=0.15)


def test_where_the_model_is_worse_than_running_figures_those_are_served(example: Example) -> None:
    core = example.core
    rng = np.random.default_rng(7)
    # A feature that moves the model's predictions and tells nothing of these outputs.
    vectors = example.data.vectors[rng.integers(0, len(example.data), 1000)].copy()
    noise = Requests(
        vectors, Words(np.zeros(0, np.uint16), np.zeros(1000, np.int32)), *(np.zeros(1000) for _ in range(4))
    )
    output = lengths(100, 1000, 8, spread=0.05)
    said = core.replay(core.new_state(), [example.model], noise, stream(output, request=np.arange(1000)))
    assert not said.running[:40].any()
    assert said.running[500:].mean() > 0.9


def test_an_engine_told_to_ignore_the_end_of_sequence_produces_its_limit(example: Example) -> None:
    said = play(example, stream([100.0] * 5, limit=100.0), ignore_eos=1.0)
    for figure in (said.mean, said.median, said.q90):
        assert (figure == 100).all()
    assert (said.sd == 0).all()


def test_ordered_lengths_teach_nothing(example: Example) -> None:
    core = example.core
    state = core.new_state()
    play(example, stream([4000.0] * 200, limit=4000.0), state, ignore_eos=1.0)
    fresh = play(example, stream([100.0]))
    assert play(example, stream([100.0]), state).mean[0] == pytest.approx(fresh.mean[0])


def test_no_fewer_than_min_tokens_are_predicted(example: Example) -> None:
    said = play(example, stream([500.0] * 5), min_tokens=float(np.log1p(500)))
    assert (said.median >= 500 - 0.1).all()
    assert (said.q90 >= said.median).all()


def test_without_a_model_running_figures_serve(example: Example) -> None:
    core = example.core
    output = lengths(300, 300, 9)
    said = core.replay(core.new_state(), [], requests(core), stream(output, fit=-1))
    assert said.running.all()
    assert np.median(said.median[100:]) == pytest.approx(300, rel=0.25)


def test_whatever_comes_out_predictions_are_finite(example: Example) -> None:
    rng = np.random.default_rng(10)
    core = example.core
    vectors = rng.normal(0, 50, (300, len(core.names))).astype(np.float32)
    wild = Requests(
        vectors, Words(np.zeros(0, np.uint16), np.zeros(300, np.int32)), *(np.zeros(300) for _ in range(4))
    )
    output = rng.choice([0, 1, 1e6, 50], 300)
    ending = rng.integers(0, 3, 300)
    said = core.replay(
        core.new_state(), [example.model], wild, stream(output, request=np.arange(300), ending=ending)
    )
    for figure in (said.mean, said.median, said.q90, said.sd):
        assert np.isfinite(figure).all()
        assert (figure >= 0).all()


def test_more_models_than_there_is_room_for_are_forgotten_and_nothing_grows(example: Example) -> None:
    n = 1200
    names = [f"model-{k}" for k in range(n)]
    said = play(example, stream([100.0] * n, names=names, model=np.arange(n)))
    assert np.isfinite(said.mean).all()
