"""This host's cards by NVML: the real bindings over the answers that NVML's documentation gives."""

from __future__ import annotations

import sys

import pynvml
import pytest

from sidecar.telemetry.nvml import Nvml, NvmlUnavailableError
from sidecar.telemetry.xid import XidEdges


@pytest.fixture
def nvml(driver):
    library = Nvml()
    yield library
    library.close()


def test_every_card_is_read_with_its_names(nvml):
    first, second = nvml.read()
    assert (first.uuid, first.index, first.device, first.pci) == (
        "GPU-aaaa",
        "0",
        "nvidia0",
        "00000000:65:00.0",
    )
    assert (first.name, second.name) == ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")


def test_a_card_is_read_in_the_units_of_the_record(nvml):
    card = nvml.read()[0]
    assert (card.memory_used, card.memory_free, card.memory_reserved) == (60_000, 20_000, 559)
    assert (card.utilization, card.temperature) == (0.87, 61)
    assert (card.power, card.power_limit) == (512.25, 700)
    assert (card.sm_clock, card.sm_clock_max, card.throttle) == (1755, 1980, 4)
    assert (card.ecc_corrected, card.ecc_uncorrected, card.remap_failed) == (3, 1, False)
    assert card.xid == 0


def test_activity_comes_from_cards_that_monitor_it(nvml):
    first, second = nvml.read()
    assert (first.sm_active, first.tensor_active, first.memory_active) == (0.93, 0.415, 0.6025)
    assert (second.sm_active, second.tensor_active, second.memory_active) == (None, None, None)


def test_what_a_card_does_not_support_is_left_out_alone(driver, nvml):
    driver.cards[1].lacks = {
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetMemoryInfo_v2",
    }
    card = nvml.read()[1]
    assert (card.ecc_corrected, card.ecc_uncorrected, card.remap_failed, card.power) == (None,) * 4
    assert (card.memory_used, card.memory_free, card.memory_reserved) == (60_559, 20_000, None)
    assert card.temperature == 61


def test_xid_errors_are_counted_as_the_driver_queues_them(driver, nvml):
    edges = XidEdges()
    assert edges.observe(nvml.read(), 0) == []
    driver.events.extend([(1, 31), (1, 31), (0, 79)])
    cards = nvml.read()
    assert (cards[0].xid, cards[0].xid_counts) == (79, {79: 1})
    assert (cards[1].xid, cards[1].xid_counts) == (31, {31: 2})
    assert [(event.card, event.code) for event in edges.observe(cards, 1)] == [
        ("GPU-aaaa", 79),
        ("GPU-bbbb", 31),
    ]
    assert edges.observe(nvml.read(), 2) == []


def test_a_host_whose_cards_queue_no_errors_tells_none(driver, nvml):
    for card in driver.cards:
        card.lacks = {"nvmlDeviceRegisterEvents"}
    assert [(card.xid, card.xid_counts) for card in nvml.read()] == [(None, None), (None, None)]


def test_a_driver_that_goes_is_asked_anew(driver, nvml):
    nvml.read()
    driver.status = pynvml.NVML_ERROR_UNINITIALIZED
    with pytest.raises(NvmlUnavailableError, match="NVML"):
        nvml.read()
    driver.status = pynvml.NVML_SUCCESS
    assert len(nvml.read()) == 2


def test_a_card_that_falls_off_the_bus_says_so_and_the_others_go_on(driver, nvml):
    edges = XidEdges()
    edges.observe(nvml.read(), 0)
    driver.events.append((0, 79))
    driver.cards[0].lost = True
    lost, other = nvml.read()
    assert [(event.card, event.code) for event in edges.observe([lost, other], 1)] == [("GPU-aaaa", 79)]
    assert (lost.uuid, lost.memory_used, lost.temperature, lost.utilization) == ("GPU-aaaa", None, None, None)
    assert (other.temperature, other.utilization) == (61, 0.87)


def test_a_card_that_was_lost_before_is_left_out(driver, nvml):
    driver.cards[0].lost = True
    (card,) = nvml.read()
    assert (card.uuid, card.index, card.device) == ("GPU-bbbb", "1", "nvidia1")


def test_closing_gives_everything_back(driver):
    library = Nvml()
    library.read()
    assert driver.users == 1
    library.close()
    assert (driver.users, driver.samples, driver.registered) == (0, 0, set())


def test_a_host_without_a_driver_says_so(monkeypatch):
    def missing(_name):
        raise OSError

    monkeypatch.setattr(pynvml, "CDLL", missing)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    with pytest.raises(NvmlUnavailableError, match=r"NVML: .*Not Found"):
        Nvml().read()


def test_a_driver_without_cards_says_so(driver):
    driver.cards.clear()
    with pytest.raises(NvmlUnavailableError, match="shows no GPU"):
        Nvml().read()


def test_a_host_without_the_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlUnavailableError, match=r"requirements-extras\.lock"):
        Nvml().read()


@pytest.mark.gpu
def test_a_real_card_is_read():
    library = Nvml()
    try:
        cards = library.read()
        again = library.read()
    finally:
        library.close()
    assert cards
    for card in again:
        assert card.uuid.startswith("GPU-")
        assert 0 <= card.memory_use <= 1
        assert 0 <= card.utilization <= 1
        assert 0 < card.temperature < 120
        assert card.sm_clock <= card.sm_clock_max
