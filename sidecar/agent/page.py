"""A host's cards in the words of NVIDIA's DCGM exporter: whoever reads that reads this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sidecar.telemetry.readings import Card

AGENT: Final = "tokenweir_agent_info"
FIELDS: Final[tuple[tuple[str, str, Callable[[Card], float | None]], ...]] = (
    ("DCGM_FI_DEV_SM_CLOCK", "SM clock (in MHz).", lambda card: card.sm_clock),
    ("DCGM_FI_DEV_MAX_SM_CLOCK", "Highest SM clock (in MHz).", lambda card: card.sm_clock_max),
    ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", lambda card: card.temperature),
    ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", lambda card: card.power),
    ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "Power limit (in W).", lambda card: card.power_limit),
    ("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", lambda card: _times(card.utilization, 100)),
    ("DCGM_FI_DEV_FB_USED", "Frame buffer used (in MiB).", lambda card: card.memory_used),
    ("DCGM_FI_DEV_FB_FREE", "Frame buffer free (in MiB).", lambda card: card.memory_free),
    ("DCGM_FI_DEV_FB_RESERVED", "Frame buffer reserved (in MiB).", lambda card: card.memory_reserved),
    ("DCGM_FI_DEV_XID_ERRORS", "Last XID error.", lambda card: card.xid),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Clock event reasons (bits).", lambda card: card.throttle),
    ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Single-bit volatile ECC errors.", lambda card: card.ecc_corrected),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Double-bit volatile ECC errors.", lambda card: card.ecc_uncorrected),
    (
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        "Whether remapping has failed.",
        lambda card: card.remap_failed,
    ),
    ("DCGM_FI_PROF_SM_ACTIVE", "Share of SM time with a warp assigned.", lambda card: card.sm_active),
    (
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "Share of time tensor cores work.",
        lambda card: card.tensor_active,
    ),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "Share of time the memory moves data.", lambda card: card.memory_active),
)
XID_TOTAL: Final = "DCGM_EXP_XID_ERRORS_TOTAL"


def render(cards: Sequence[Card], hostname: str, read_ms: float, cpu_seconds: float) -> str:
    """The page. `read_ms` is what the last look at the cards took, `cpu_seconds` what the agent has used."""
    lines = [f"# TYPE {AGENT} gauge", f'{AGENT}{{source="nvml"}} 1']
    for name, text, value_of in FIELDS:
        told = [(card, value) for card in cards if (value := value_of(card)) is not None]
        if told:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
            lines += [f"{name}{{{_labels(card, hostname)}}} {float(value):.10g}" for card, value in told]
    counts = [(card, code, count) for card in cards for code, count in (card.xid_counts or {}).items()]
    if counts:
        lines += [f"# HELP {XID_TOTAL} XID errors since the agent began.", f"# TYPE {XID_TOTAL} counter"]
        lines += [
            f'{XID_TOTAL}{{{_labels(card, hostname)},xid="{code}"}} {count:g}' for card, code, count in counts
        ]
    lines += _own(read_ms, cpu_seconds)
    return "\n".join([*lines, ""])


def _own(read_ms: float, cpu_seconds: float) -> Iterable[str]:
    """What the agent costs."""
    for name, kind, value in (
        ("tokenweir_agent_read_seconds", "gauge", read_ms / 1000),
        ("tokenweir_agent_cpu_seconds_total", "counter", cpu_seconds),
    ):
        yield f"# TYPE {name} {kind}"
        yield f"{name} {value:.6g}"


def _labels(card: Card, hostname: str) -> str:
    pairs = {
        "gpu": card.index,
        "UUID": card.uuid,
        "pci_bus_id": card.pci,
        "device": card.device,
        "modelName": card.name,
        "Hostname": hostname,
    }
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs.items() if value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
