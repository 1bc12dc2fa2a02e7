"""What the status of `/health` means."""

from __future__ import annotations

import pytest

from sidecar.telemetry.health import Look, read


@pytest.mark.parametrize("status", [200, 204, 404, 405, 501])
def test_a_good_answer_or_no_such_page_is_alive(status):
    assert read(status) is Look.OK


def test_503_is_a_model_that_loads():
    assert read(503) is Look.LOADING


@pytest.mark.parametrize("status", [401, 500, 502])
def test_other_statuses_are_errors(status):
    assert read(status) is Look.ERROR
