"""The bench's pages are what the sidecar meets: as large, and read whole."""

from __future__ import annotations

from bench.telemetry.pages import CARDS_OF_A_HOST, FIELDS, exporter_pages, vllm_pages
from sidecar.telemetry import dcgm, vllm
from sidecar.telemetry.exposition import Page


def test_an_engines_page_is_as_large_as_a_real_one_and_moves():
    first, second = vllm_pages(1)[:2]
    assert 40_000 < len(first) < 80_000
    before, after = vllm.read(Page(first), 0), vllm.read(Page(second), 1)
    assert before.movement != after.movement
    assert before.capacity == 442_880
    told = [name for name in before.__slots__ if getattr(before, name) is not None]
    assert {"ttft", "queue_time", "prefill_time", "decode_time", "inter_token", "steps", "finished"} <= set(
        told
    )


def test_an_exporters_page_has_the_cards_of_a_host_with_all_fields():
    cards = dcgm.read(Page(exporter_pages(1)[0]), dcgm.Labels())
    assert len(cards) == CARDS_OF_A_HOST
    known = {field for field, _, _ in dcgm.FIELDS}
    assert set(FIELDS) <= known
    assert all(card.memory_use and card.tensor_active and card.ecc_corrected == 0 for card in cards)
