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


def test_another_sidecar_goes_on_with_it():
    margin, other = Margin(), Margin()
    margin.out_of_memory(1000)
    other.restore(margin.dump(301_000), 51_000)
    assert other.z(1.3, 51_000) == margin.z(1.3, 301_000)
    assert other.z(1.3, 351_000) == margin.z(1.3, 601_000)


def test_what_another_sidecar_has_counted_is_not_counted_again():
    margin, other = Margin(), Margin()
    margin.out_of_memory(1000)
    other.restore(margin.dump(3000), 53_000)
    other.out_of_memory(51_000)
    assert other.z(1.3, 53_000) == margin.z(1.3, 3000)


def test_of_one_that_met_nothing_nothing_is_taken_over():
    margin = Margin()
    margin.restore(Margin().dump(1000), 1000)
    margin.out_of_memory(1000)
    assert margin.z(1.3, 1000) == pytest.approx(2.0)
