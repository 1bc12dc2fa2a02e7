"""The GPUs of a host, by NVIDIA's DCGM exporter (or by `python -m sidecar.agent`, which speaks alike).

Fields that DCGM cannot read hold blanks: the largest integers and 2^47. Which fields there are is the
exporter's configuration (`deploy/dcgm/collectors.csv`).
https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html
https://github.com/NVIDIA/DCGM/blob/master/dcgmlib/dcgm_structs.h (blank values)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from sidecar.telemetry.exposition import ESCAPE, Page
from sidecar.telemetry.page_layout import Layout
from sidecar.telemetry.readings import Card

NAME: Final = "dcgm"
BLANK: Final = 0x7FFFFFF0
"""DCGM_INT32_BLANK; all other blanks are larger, and no field read here comes near."""
MOST_CARDS: Final = 256
LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')

AGENT: Final = "tokenweir_agent_info"
LEARN_EVERY: Final = 8
"""Of the pages that are not made as the one before, the one that is learnt from."""


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
BY_FIELD: Final = {field: (rank, name, convert) for rank, (field, name, convert) in enumerate(FIELDS)}
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


class What(NamedTuple):
    """What a sample tells: of which card, with which labels, under which name in `Card`."""

    card: tuple[str, str]
    pairs: dict[str, str]
    rank: int
    """Of its field among all."""
    name: str
    convert: Callable[[float], Any]
    code: int = 0
    """Of a count of XID errors; 0: a field."""


class Reader:
    """Reads the pages of one host: each as the one before, where it is made alike, else anew."""

    def __init__(self) -> None:
        self._labels = Labels()
        self._places: dict[str, int] = {}
        self._layout: Layout[What] = Layout()
        self._source = NAME
        self._pages_until_learning = 0

    def read(self, body: bytes) -> tuple[str, list[Card]]:
        """(who made the page: `dcgm`, or `nvml` for the agent; its cards in its order, none where it is not
        the exporter's)."""
        values = self._layout.values(body)
        if values is not None:
            return self._source, _cards(zip(self._layout.wanted, values, strict=True))
        page = Page(body, self._places)
        cards = read(page, self._labels)
        self._source = source(page)
        self._pages_until_learning -= 1
        if self._pages_until_learning < 0:
            self._pages_until_learning = LEARN_EVERY - 1
            self._learn(body, cards)
        return self._source, cards

    def _learn(self, body: bytes, cards: list[Card]) -> None:
        """Learn how the page is made, unless what would be read by that is not what is there."""
        self._layout.learn(body, self._wanted, lambda what: what.rank)
        values = self._layout.values(body)
        if values is None or _cards(zip(self._layout.wanted, values, strict=True)) != cards:
            self._layout.forget()

    def _wanted(self, name: bytes, labels: bytes) -> What | None:
        return _what(name.decode("utf-8", "replace"), labels, self._labels)


def read(page: Page, labels: Labels) -> list[Card]:
    """The cards of a page in its order; none where the page is not the exporter's."""
    return _cards(
        (what, value)
        for field in (*BY_FIELD, *XID_COUNTS)
        for raw, value in page.samples(field)
        if (what := _what(field, raw, labels)) is not None
    )


def _what(field: str, raw: bytes, labels: Labels) -> What | None:
    """What a sample of a field tells; None where it is not wanted, or no card's."""
    known = BY_FIELD.get(field)
    if known is None and field not in XID_COUNTS:
        return None
    card, pairs = labels.of(raw)
    if card is None:
        return None
    if known is not None:
        return What(card, pairs, *known)
    code = pairs.get("xid", "")
    if not code.isdigit() or not int(code):
        return None
    rank = len(FIELDS) + XID_COUNTS.index(field)
    return What(card, pairs, rank, "xid_counts", float, int(code))


def _cards(values: Iterable[tuple[What, float]]) -> list[Card]:
    """The cards that the samples tell of. Of two fields for one thing the first that is no blank holds."""
    cards: dict[tuple[str, str], tuple[dict[str, str], dict[str, Any]]] = {}
    for (card, pairs, _, name, convert, code), value in values:
        if not 0 <= value < BLANK:
            continue
        known = cards.get(card)
        if known is None:
            if code or len(cards) >= MOST_CARDS:
                continue
            known = cards[card] = pairs, {}
        figures = known[1]
        if code:
            figures.setdefault(name, {}).setdefault(code, value)
        elif name not in figures:
            figures[name] = value if convert is float else convert(value)
    return [_card(key, pairs, figures) for key, (pairs, figures) in cards.items()]


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
