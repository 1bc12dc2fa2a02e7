"""What a source yields. Every reading says when it was taken (monotonic ms) and from where, so that each
value has an age; a value that the source does not tell is None."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EngineReading:
    """One look at an engine's metrics."""

    at: float
    source: str
    running: float | None = None
    """Requests in the batch."""
    waiting: float | None = None
    """Requests that the engine has queued."""
    kv_use: float | None = None
    """Share of the KV memory in use, 0 to 1."""
    capacity: int | None = None
    """KV tokens."""
    movement: tuple[float | None, ...] = ()
    """Counters that move while the engine works; any change is progress."""
    output_tokens: float | None = None
    prompt_tokens: float | None = None
    preemptions: float | None = None

    @property
    def load(self) -> float | None:
        """Running + waiting requests."""
        return None if self.running is None else self.running + (self.waiting or 0)


@dataclass(frozen=True, slots=True)
class CardReading:
    """One look at a server's GPUs through the DCGM exporter; figures are means over its cards."""

    at: float
    source: str
    memory_use: float | None = None
    """Share of the frame buffer in use, 0 to 1."""
    utilization: float | None = None
    """GPU-Util, 0 to 1."""
    sm_active: float | None = None
    tensor_active: float | None = None
    temperature: float | None = None
    power: float | None = None
    xid: float | None = None
    """Last XID error of any card; 0: none."""
    name: str | None = None
    """The driver's name of the card."""
    cards: int = 0


@dataclass(frozen=True, slots=True)
class ModelsReading:
    """What an engine serves, by its `/v1/models` and its own information page."""

    at: float
    source: str
    names: tuple[str, ...] = ()
    context: int | None = None
    capacity: int | None = None
    slots: int | None = None
    """Sequences that it decodes at once, where it says so."""
    owner: str | None = None


@dataclass(slots=True)
class Record:
    """Everything last known of one backend; the one thing that the telemetry hands out."""

    engine_kind: str = ""
    engine: EngineReading | None = None
    card: CardReading | None = None
    models: ModelsReading | None = None
    failures: int = 0
    """Failed looks in a row."""
    failure: str = ""
    """Why the last look failed; empty after a good one."""
    answered_at: float | None = None
    """When the engine last answered anything."""
    notes: dict[str, str] = field(default_factory=dict)
    """What cannot be read and why, by source."""
