"""The exporter's page as cards, one by one."""

from __future__ import annotations

from dataclasses import asdict

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


def as_anew(body: bytes) -> list[dict[str, object]]:
    """What a page says to who has never seen another."""
    return [asdict(card) for card in dcgm.read(Page(body), dcgm.Labels())]


@pytest.mark.parametrize("name", ["dcgm", "dcgm_pods", "dcgm_mig"])
def test_later_pages_say_the_same_to_who_has_read_the_ones_before(page, name):
    reader = dcgm.Reader()
    body = page(name).body
    lines = body.split(b"\n")
    without_a_card = b"\n".join(line for line in lines if b'gpu="1"' not in line)
    pages = [
        body,
        body,
        body.replace(b"} 1", b"} 9"),
        body.replace(b"} 0", b"} 9223372036854775794"),
        body.replace(b"} 0", b"} NaN"),
        body.replace(b'Hostname="', b'Hostname="other-'),
        without_a_card,
        body.replace(b"\n", b" 1700000000000\n"),
        body + b'DCGM_EXP_XID_ERRORS_COUNT{gpu="0",UUID="GPU-x",xid="43"} 1\n',
        b"".join(line + b"\n" for line in reversed(lines)),
        b"# nothing\n",
        *[body] * 20,
        body.replace(b"} 1", b"} 3"),
    ]
    for one in pages:
        assert [asdict(card) for card in reader.read(one)[1]] == as_anew(one)


def test_pages_made_alike_are_not_searched_again(page, monkeypatch):
    reader = dcgm.Reader()
    body = page("dcgm_pods").body
    reader.read(body)
    monkeypatch.setattr(dcgm, "read", None)
    assert reader.read(body.replace(b"} 88", b"} 91"))[1][2].temperature == 91


def test_a_page_that_changes_is_learnt_anew_in_time(page, monkeypatch):
    reader = dcgm.Reader()
    body = page("dcgm_pods").body
    reader.read(body)
    other = body.replace(b'pod="vllm-a-0"', b'pod="vllm-a-1"')
    for _ in range(dcgm.LEARN_EVERY):
        reader.read(other)
    monkeypatch.setattr(dcgm, "read", None)
    assert reader.read(other)[1][0].labels["pod"] == "vllm-a-1"


def test_of_two_fields_for_one_thing_the_first_that_is_told_holds():
    reader = dcgm.Reader()
    pages = [
        f'DCGM_FI_DEV_POWER_MGMT_LIMIT{{gpu="0"}} 300\n'
        f'DCGM_FI_DEV_ENFORCED_POWER_LIMIT{{gpu="0"}} {limit}\nDCGM_FI_DEV_FB_USED{{gpu="0"}} 5\n'
        for limit in (250, 260, 9223372036854775794)
    ]
    assert [reader.read(text.encode())[1][0].power_limit for text in pages] == [250, 260, 300]
