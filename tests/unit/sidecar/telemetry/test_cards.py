"""Which cards are a backend's, and several cards as one reading."""

from __future__ import annotations

import pytest

from sidecar.telemetry import cards, dcgm
from sidecar.telemetry.readings import Card


@pytest.fixture
def host(page):
    return dcgm.read(page("dcgm_pods"), dcgm.Labels())


def test_all_cards_unless_some_are_named(host):
    assert cards.select(host, [], {}) == host


@pytest.mark.parametrize(
    "name",
    ["2", "nvidia2", "GPU-20000000-0000-4000-8000-000000000002", "00000000:85:00.0", "0000:85:00.0"],
)
def test_a_card_is_named_by_index_device_uuid_or_bus(host, name):
    assert cards.select(host, [name], {}) == [host[2]]


def test_cards_are_named_by_a_label_of_the_exporter(host):
    assert cards.select(host, [], {"pod": "vllm-a-0"}) == host[:2]
    assert cards.select(host, ["1"], {"pod": "vllm-a-0", "namespace": "llm"}) == [host[1]]


def test_a_card_that_is_not_there_is_named_with_those_that_are(host):
    with pytest.raises(cards.SelectionError, match=r"no card '7'; there are: 0 \(GPU-0"):
        cards.select(host, ["7"], {})
    with pytest.raises(cards.SelectionError, match="labelled pod=gone"):
        cards.select(host, [], {"pod": "gone"})


def test_a_mig_instance_is_named_by_its_card_and_number(page):
    host = dcgm.read(page("dcgm_mig"), dcgm.Labels())
    assert cards.select(host, ["0/5"], {}) == [host[1]]
    assert cards.select(host, ["GPU-mm/1"], {}) == [host[0]]
    assert cards.select(host, ["GPU-mm"], {}) == host


def test_tensor_parallel_cards_are_as_full_as_the_fullest(host):
    reading = cards.fold(host[:2], at=3, source="dcgm")
    assert reading.memory_use == pytest.approx(74_000 / 80_000)
    assert (reading.at, reading.source, reading.cards, reading.members) == (3, "dcgm", 2, tuple(host[:2]))


def test_shares_are_means_power_is_summed_heat_is_the_hottest(host):
    reading = cards.fold(host[:2], at=0, source="dcgm")
    assert reading.utilization == pytest.approx(0.96)
    assert (reading.sm_active, reading.tensor_active) == (pytest.approx(0.93), pytest.approx(0.4))
    assert (reading.power, reading.power_limit, reading.temperature) == (1011, 1400, 53)
    assert (reading.ecc_corrected, reading.ecc_uncorrected, reading.remap_failed) == (2, 0, False)


def test_the_slowest_card_sets_the_clock_and_the_reasons_add_up(host):
    reading = cards.fold(host[1:3], at=0, source="dcgm")
    assert (reading.sm_clock, reading.sm_clock_max, reading.throttle) == (1200, 1980, 0x64)
    assert reading.throttled == ("power cap", "software thermal slowdown", "hardware thermal slowdown")


def test_idle_and_chosen_clocks_are_no_throttling():
    reading = cards.fold([Card("a", throttle=0x1 | 0x2 | 0x10 | 0x100)], at=0, source="dcgm")
    assert (reading.throttle, reading.throttled) == (0x113, ())


def test_what_no_card_tells_is_not_told():
    reading = cards.fold([Card("a"), Card("b", temperature=40)], at=0, source="dcgm")
    assert (reading.memory_use, reading.throttle, reading.xid, reading.remap_failed) == (None,) * 4
    assert reading.temperature == 40
    assert cards.fold([], at=0, source="dcgm") is None


@pytest.mark.parametrize("name", ["dcgm", "dcgm_pods", "dcgm_mig"])
def test_a_card_alone_reads_as_a_group_of_one(page, name):
    for card in dcgm.read(page(name), dcgm.Labels()):
        assert cards.fold([card], 1.0, "dcgm") == cards.together([card], 1.0, "dcgm")
