"""`sidecar/queue_limits.py`: what gateways are told of the queue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sidecar.queue_limits import queue_limits
from tokenweir.config.loading import parse
from tokenweir.contract.records import QueueLimits


def limits(**config: Any) -> QueueLimits:
    return queue_limits(parse(json.dumps(config), "test", {}))


@pytest.mark.parametrize(
    ("config", "order"),
    [
        ({}, "fair"),
        ({"policy": "hybrid"}, "score"),
        ({"policy": "shadow:hybrid"}, "fair"),
        ({"policy": "hybrid", "queue": {"order": "fair"}}, "fair"),
        ({"queue": {"order": "fifo"}}, "fifo"),
    ],
)
def test_the_order_follows_the_policy_unless_it_is_set(config: dict[str, Any], order: str) -> None:
    assert limits(**config).order == order


def test_without_configuration_the_contract_s_defaults_hold() -> None:
    assert limits() == QueueLimits()


def test_bounds_of_classes_are_passed_on() -> None:
    told = limits(queue={"low": {"max_wait": "5s", "max_waiting": 3, "floor": 0.2}, "pass_for": "1s"})
    low = told.classes.low
    assert (low.max_wait_ms, low.max_waiting, low.floor, low.weight) == (5000, 3, 0.2, 1)
    assert told.classes.high.max_wait_ms is None
    assert told.pass_ms == 1000
