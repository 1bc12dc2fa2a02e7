"""The policy's margin after an out-of-memory."""

from __future__ import annotations

import pytest

from sidecar.control.margin import Margin


def test_it_widens_with_an_out_of_memory_and_decays_slowly():
    margin = Margin()
    assert margin.z(1.3, 0) == 1.3
    margin.out_of_memory(0)
    assert margin.z(1.3, 0) == pytest.approx(2.0)
    assert margin.z(1.3, 600_000) == pytest.approx(1.56)
    assert margin.z(1.3, 3_600_000) == 1.3


def test_requests_that_fell_together_count_once():
    margin = Margin()
    for k in range(30):
        margin.out_of_memory(10.0 * k)
    assert margin.z(1.3, 300) == pytest.approx(2.0)


def test_it_has_a_most():
    margin = Margin()
    for k in range(30):
        margin.out_of_memory(3000.0 * k)
    assert margin.z(1.3, 87_000) == pytest.approx(4.1)
