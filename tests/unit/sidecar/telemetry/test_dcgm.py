"""The exporter's page as cards, one by one."""

from __future__ import annotations

import pytest

from sidecar.telemetry import dcgm
from sidecar.telemetry.exposition import Page


@pytest.fixture
def cards(page):
    """The cards of a page by its name."""
    return lambda name: dcgm.read(page(name), dcgm.Labels())


def test_a_card_has_its_names_and_labels(cards):
    card = cards("dcgm_pods")[1]
    assert (card.index, card.device, card.pci) == ("1", "nvidia1", "00000000:75:00.0")
    assert card.uuid == "GPU-10000000-0000-4000-8000-000000000001"
    assert card.name == "NVIDIA H100 80GB HBM3"
    assert (card.labels["pod"], card.labels["namespace"]) == ("vllm-a-0", "llm")


def test_a_card_has_all_that_the_shipped_collectors_ask_for(cards):
    card = cards("dcgm_pods")[2]
    assert (card.memory_used, card.memory_free, card.memory_reserved) == (71_900, 8_100, 621)
    assert card.memory_use == pytest.approx(71_900 / 80_000)
    assert (card.utilization, card.sm_active, card.tensor_active, card.memory_active) == (1, 0.99, 0.21, 0.3)
    assert (card.temperature, card.power, card.power_limit) == (88, 410.5, 700)
    assert (card.sm_clock, card.sm_clock_max, card.throttle) == (1200, 1980, 0x60)
    assert (card.ecc_corrected, card.ecc_uncorrected, card.remap_failed) == (0, 1, True)
    assert card.xid == 0


def test_blank_values_are_not_told(cards):
    card = cards("dcgm_pods")[3]
    assert (card.ecc_corrected, card.ecc_uncorrected, card.remap_failed) == (None, None, None)
    assert (card.sm_active, card.tensor_active, card.memory_active) == (None, None, None)
    assert card.utilization == 0.99


@pytest.mark.parametrize(
    "blank",
    [
        *(0x7FFFFFF0 + n for n in range(4)),
        *(0x7FFFFFFFFFFFFFF0 + n for n in range(4)),
        *(2.0**47 + n for n in range(4)),
    ],
)
def test_every_blank_of_dcgm_is_known(blank):
    page = Page(f'DCGM_FI_DEV_GPU_TEMP{{gpu="0"}} {blank}\nDCGM_FI_DEV_FB_USED{{gpu="0"}} 5\n'.encode())
    (card,) = dcgm.read(page, dcgm.Labels())
    assert (card.temperature, card.memory_used) == (None, 5)


def test_counts_of_xid_errors_are_by_code(cards):
    found = cards("dcgm_pods")
    assert (found[3].xid, found[3].xid_counts) == (31, {31: 2})
    assert found[0].xid_counts is None


def test_the_throttle_reasons_have_an_old_name_too():
    page = Page(b'DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="0"} 8\n')
    assert dcgm.read(page, dcgm.Labels())[0].throttle == 8


def test_instances_of_a_card_are_cards_of_their_own(cards):
    one, five = cards("dcgm_mig")
    assert (one.instance, one.memory_use, one.temperature) == ("1", 0.9, 44)
    assert (five.instance, five.memory_use, five.temperature) == ("5", 0.005, None)


def test_an_exporter_with_its_default_fields_is_read(cards):
    found = cards("dcgm")
    assert [card.memory_use for card in found] == [0.75, 0.75]
    assert [card.sm_active for card in found] == [None, None]


def test_a_page_of_something_else_has_no_cards():
    assert dcgm.read(Page(b"# TYPE go_goroutines gauge\ngo_goroutines 9\n"), dcgm.Labels()) == []
    assert dcgm.read(Page(b""), dcgm.Labels()) == []


def test_the_agent_is_told_from_the_exporter(page):
    assert dcgm.source(page("dcgm")) == "dcgm"
    assert (
        dcgm.source(Page(b'# TYPE tokenweir_agent_info gauge\ntokenweir_agent_info{by="nvml"} 1\n')) == "nvml"
    )


def test_labels_are_decoded_and_kept():
    labels = dcgm.Labels()
    raw = b'gpu="0",note="a \\"b\\" \\\\ c\\nd"'
    assert labels.of(raw).pairs == {"gpu": "0", "note": 'a "b" \\ c\nd'}
    assert labels.of(raw) is labels.of(raw)
