"""Histograms and sums of a page in the record's units."""

from __future__ import annotations

import pytest

from sidecar.telemetry import totals
from sidecar.telemetry.exposition import Page
from sidecar.telemetry.readings import Total

PAGE = Page(
    b"# TYPE ttft histogram\n"
    b'ttft_bucket{le="+Inf"} 4\nttft_sum 0.5\nttft_count 4\n'
    b"# TYPE prompt histogram\n"
    b'prompt_bucket{le="+Inf"} 2\nprompt_sum 700\nprompt_count 2\n'
    b"# TYPE preemptions counter\n"
    b'preemptions_total{rank="0"} 1\npreemptions_total{rank="1"} 2\n'
)


def test_seconds_become_milliseconds_and_counts_stay() -> None:
    assert totals.seconds(PAGE, "ttft") == Total(500, 4)
    assert totals.plain(PAGE, "prompt") == Total(700, 2)


def test_of_a_metric_that_was_renamed_the_first_name_that_is_there_counts() -> None:
    assert totals.seconds(PAGE, "time_to_first", "ttft") == Total(500, 4)
    assert totals.first(PAGE, "num_preemptions_total", "preemptions_total") == 3


def test_what_the_page_does_not_have_is_none() -> None:
    assert totals.seconds(PAGE, "itl") is None
    assert totals.plain(PAGE, "itl") is None
    assert totals.first(PAGE, "itl") is None


@pytest.mark.parametrize(("told", "kept"), [(None, None), (1.01, 1.0), (-0.1, 0.0), (0.4, 0.4)])
def test_a_share_that_overshoots_is_bounded(told: float | None, kept: float | None) -> None:
    assert totals.share(told) == kept
