"""What XID errors ask for."""

from __future__ import annotations

import pytest

from sidecar.control.xid import Remedy, XidWatch, describe, remedy
from sidecar.telemetry.readings import XidEvent


@pytest.mark.parametrize("code", [13, 31, 43, 45, 94])
def test_these_are_mended_by_a_restart_of_the_engine(code):
    assert remedy(code) is Remedy.RESTART


@pytest.mark.parametrize("code", [48, 74, 79, 95, 119, 120])
def test_no_restart_mends_these(code):
    assert remedy(code) is Remedy.REMOVE


def test_others_are_only_noted():
    assert remedy(63) is Remedy.NOTE


def test_an_event_is_acted_on_once():
    watch = XidWatch()
    first, second = XidEvent(1.0, 13, "GPU-a"), XidEvent(2.0, 79, "GPU-a", "0")
    assert watch.new([first]) == [first]
    assert watch.new([first, second]) == [second]
    assert watch.new([first, second]) == []


def test_an_event_is_told_with_its_name_and_card():
    assert describe(XidEvent(1.0, 79, "GPU-a", "3")) == "XID 79 (GPU has fallen off the bus) on card 3"
    assert describe(XidEvent(1.0, 999, "GPU-a")) == "XID 999 (see NVIDIA's list) on card GPU-a"


def test_what_another_sidecar_has_acted_on_is_passed_over():
    watch = XidWatch()
    first, second = XidEvent(1.0, 13, "GPU-a"), XidEvent(2.0, 79, "GPU-a", "0")
    watch.pass_over(1.5)
    assert watch.new([first, second]) == [second]
