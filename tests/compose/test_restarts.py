"""`docker compose restart` of each service under load: only requests on the part restarted may fail."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.compose.load import Load

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

BEFORE_S, AFTER_S = 2.0, 4.0


def restart_under_load(stack: Any, service: str) -> tuple[Load, float, float]:
    """The traffic around a restart, and when the restart began and ended."""
    stack.until_ready()
    with Load(stack.base_url) as load:
        time.sleep(BEFORE_S)
        began = time.monotonic()
        stack.compose("restart", service)
        ended = time.monotonic()
        time.sleep(AFTER_S)
    assert any(outcome.ended < began for outcome in load.outcomes)
    return load, began, ended


@pytest.mark.parametrize("service", ["sidecar", "redis"])
def test_no_request_fails_while_the_control_plane_restarts(stack: Any, service: str) -> None:
    load, _, ended = restart_under_load(stack, service)
    assert [outcome.failure for outcome in load.failed] == []
    assert any(outcome.started > ended for outcome in load.outcomes)
    stack.until_ready()


def test_streams_end_whole_while_the_gateway_restarts(stack: Any) -> None:
    load, began, ended = restart_under_load(stack, "gateway")
    # A stream that had begun goes on to its end; only what found the door closed fails, while it is closed.
    broken = [outcome.failure for outcome in load.failed if outcome.connected]
    assert broken == []
    assert all(began <= outcome.ended <= ended + AFTER_S / 2 for outcome in load.failed)
    assert any(outcome.failure is None and outcome.started > ended for outcome in load.outcomes)
    stack.until_ready()


def test_only_requests_on_a_backend_fail_while_it_restarts(stack: Any) -> None:
    load, _, ended = restart_under_load(stack, "a100-a")
    assert {outcome.backend for outcome in load.failed} <= {"a100-a"}
    assert any(outcome.failure is None and outcome.started > ended for outcome in load.outcomes)
    stack.until_ready()
