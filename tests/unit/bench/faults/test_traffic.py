"""What the clients of the faults bench send."""

from __future__ import annotations

import json
from collections import Counter

from bench.faults.traffic import Leave, requests


def test_a_seed_gives_the_same_requests():
    assert list(requests(5, 50, seed=1)) == list(requests(5, 50, seed=1))
    assert list(requests(5, 50, seed=1)) != list(requests(5, 50, seed=2))


def test_arrivals_are_in_order_and_as_many_as_asked_for():
    found = list(requests(100, 50, seed=1))
    assert 4500 < len(found) < 5500
    assert [request.at for request in found] == sorted(request.at for request in found)
    assert len({request.id for request in found}) == len(found)


def test_clients_leave_at_every_moment():
    left = Counter(request.leave for request in requests(100, 50, seed=1))
    assert set(left) == {None, *Leave}
    assert 0.25 < 1 - left[None] / left.total() < 0.35


def test_a_body_says_whether_it_wants_a_stream():
    for request in requests(2, 50, seed=1):
        assert json.loads(request.body)["stream"] is request.stream
