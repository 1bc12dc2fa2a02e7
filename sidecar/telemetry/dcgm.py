"""The GPUs of a host, by NVIDIA's DCGM exporter (or by `python -m sidecar.agent`, which speaks alike).

Fields that DCGM cannot read hold blanks: the largest integers and 2^47. Which fields there are is the
exporter's configuration (`deploy/dcgm/collectors.csv`).
https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html
https://github.com/NVIDIA/DCGM/blob/master/dcgmlib/dcgm_structs.h (blank values)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sidecar.telemetry.exposition import ESCAPE, Page
from sidecar.telemetry.readings import Card

NAME: Final = "dcgm"
BLANK: Final = 0x7FFFFFF0
"""DCGM_INT32_BLANK; all other blanks are larger, and no field read here comes near."""
MOST_CARDS: Final = 256
LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')

AGENT: Final = "tokenweir_agent_info"


def _percent(value: float) -> float:
    return min(max(value / 100, 0.0), 1.0)


def _ratio(value: float) -> float:
    return min(max(value, 0.0), 1.0)


FIELDS: Final[tuple[tuple[str, str, Callable[[float], Any]], ...]] = (
    ("DCGM_FI_DEV_FB_USED", "memory_used", float),
    ("DCGM_FI_DEV_FB_FREE", "memory_free", float),
    ("DCGM_FI_DEV_FB_RESERVED", "memory_reserved", float),
    ("DCGM_FI_DEV_GPU_UTIL", "utilization", _percent),
    ("DCGM_FI_PROF_SM_ACTIVE", "sm_active", _ratio),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "tensor_active", _ratio),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "memory_active", _ratio),
    ("DCGM_FI_DEV_GPU_TEMP", "temperature", float),
    ("DCGM_FI_DEV_POWER_USAGE", "power", float),
    ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "power_limit", float),
    ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "power_limit", float),
    ("DCGM_FI_DEV_SM_CLOCK", "sm_clock", float),
    ("DCGM_FI_DEV_MAX_SM_CLOCK", "sm_clock_max", float),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "throttle", int),
    ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "throttle", int),
    ("DCGM_FI_DEV_XID_ERRORS", "xid", int),
    ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "ecc_corrected", float),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "ecc_uncorrected", float),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "remap_failed", bool),
)
"""Field -> what it is in `Card`, and how it gets there. Of two fields for one thing the first that is
there holds."""
XID_COUNTS: Final = ("DCGM_EXP_XID_ERRORS_TOTAL", "DCGM_EXP_XID_ERRORS_COUNT")
"""XID errors by code: since the exporter started, and within its window."""


class Labels:
    """The labels of a host's cards, taken apart once: they are the same on every page and every line."""

    def __init__(self) -> None:
        self._known: dict[bytes, Labelled] = {}

    def of(self, raw: bytes) -> Labelled:
        """The labels as they stand between the braces, taken apart."""
        found = self._known.get(raw)
        if found is None:
            if len(self._known) > 4 * MOST_CARDS:
                self._known.clear()
            pairs = {
                name: ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], value)
                for name, value in LABEL.findall(raw.decode("utf-8", "replace"))
            }
            card = pairs.get("UUID") or pairs.get("uuid") or pairs.get("gpu")
            found = Labelled((card, pairs.get("GPU_I_ID", "")) if card else None, pairs)
            self._known[raw] = found
        return found


class Labelled(NamedTuple):
    """Labels of a sample."""

    card: tuple[str, str] | None
    """UUID and MIG instance; None of a sample that is no card's."""
    pairs: dict[str, str]


def read(page: Page, labels: Labels) -> list[Card]:
    """The cards of a page in its order; none where the page is not the exporter's."""
    cards: dict[tuple[str, str], tuple[dict[str, str], dict[str, Any]]] = {}
    # The cards stand in the same order under every field: their labels, as they are written, and figures.
    order: list[bytes] = []
    figures: list[dict[str, Any]] = []
    for field, name, convert in FIELDS:
        for place, (raw, value) in enumerate(page.samples(field, order)):
            if value >= BLANK or value < 0:
                continue
            if place < len(order) and order[place] == raw:
                found = figures[place]
            else:
                card, pairs = labels.of(raw)
                if card is None or (card not in cards and len(cards) >= MOST_CARDS):
                    continue
                found = cards.setdefault(card, (pairs, {}))[1]
                if place == len(order):
                    order.append(raw)
                    figures.append(found)
            if name not in found:
                found[name] = value if convert is float else convert(value)
    for field in XID_COUNTS:
        for raw, value in page.samples(field):
            card, pairs = labels.of(raw)
            code = pairs.get("xid", "")
            if card in cards and code.isdigit() and int(code) and value < BLANK:
                cards[card][1].setdefault("xid_counts", {}).setdefault(int(code), value)
    return [_card(key, pairs, found) for key, (pairs, found) in cards.items()]


def source(page: Page) -> str:
    """Who made the page: `dcgm`, or `nvml` for the agent."""
    return "nvml" if page.total(AGENT) is not None else NAME


def _card(key: tuple[str, str], pairs: dict[str, str], found: dict[str, Any]) -> Card:
    return Card(
        uuid=key[0],
        instance=key[1],
        index=pairs.get("gpu", ""),
        device=pairs.get("device", ""),
        pci=pairs.get("pci_bus_id", ""),
        name=pairs.get("modelName", ""),
        labels=pairs,
        **found,
    )
