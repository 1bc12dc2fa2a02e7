"""The load of a model, weighted by capacity."""

from __future__ import annotations

import pytest

from sidecar.control.model_load import BackendUse, Waiting, model_load
from tokenweir.contract.records import Priority


def use(share, capacity=1000, usable=True, admit=1.0):
    return BackendUse(use=share, capacity=capacity, usable=usable, admit=admit)


def test_a_large_backend_counts_more():
    load = model_load([use(0.9, 1000), use(0.1, 9000)], Waiting())
    assert load.use == pytest.approx(0.18)
    assert (load.used, load.capacity, load.usable, load.backends) == (1800, 10_000, 2, 2)


def test_what_cannot_be_used_is_not_room():
    load = model_load([use(0.9), use(0.0, usable=False)], Waiting())
    assert load.use == pytest.approx(0.9)
    assert (load.usable, load.backends) == (1, 2)


def test_a_ramping_backend_counts_with_what_it_may_take():
    assert model_load([use(0.9), use(0.05, admit=0.05)], Waiting()).use == pytest.approx(950 / 1050)


def test_where_nobody_tells_there_is_no_load():
    assert model_load([use(None)], Waiting()).use is None
    assert model_load([], Waiting()).use is None


def test_an_unknown_capacity_is_taken_as_the_usual_one():
    assert model_load([use(0.8, None), use(0.4, 1000)], Waiting()).use == pytest.approx(0.6)
    assert model_load([use(0.8, None), use(0.4, None)], Waiting()).use == pytest.approx(0.6)


def test_the_class_counts_that_has_used_up_most_of_its_own_wait():
    waiting = Waiting(3, {Priority.HIGH: 3000, Priority.LOW: 20_000})
    assert waiting.longest() == 20_000
    assert waiting.share(lambda _: 30_000) == pytest.approx(2 / 3)
    own = {Priority.HIGH: 4000, Priority.LOW: 60_000}
    assert waiting.share(lambda priority: own[priority]) == pytest.approx(3 / 4)
    assert Waiting().share(lambda _: 30_000) == 0


def test_where_nobody_may_wait_any_waiter_is_over_its_limit():
    assert Waiting(1, {Priority.NORMAL: 1}).share(lambda _: 0) == 1


def test_it_is_told_in_words():
    text = model_load([use(0.93)], Waiting(2, {Priority.NORMAL: 5})).text()
    assert text == "memory use 93% over 1 of 1 backends, 2 waiting"
