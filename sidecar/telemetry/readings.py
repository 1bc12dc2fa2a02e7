"""What a source yields. Every reading says when it was taken (monotonic ms) and from where, so that each
value has an age; a value that the source does not tell is None. Times are ms, whatever the engine counts
in."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sidecar.telemetry.indicators import Indicators

XIDS_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class Total:
    """Sum and count of a histogram over all its label sets, since the engine started: what two readings
    differ by has the mean `sum / count` of what happened between them."""

    sum: float
    """ms, or tokens."""
    count: float
    """0 with a sum: the engine sums and does not count."""


@dataclass(frozen=True, slots=True)
class EngineReading:
    """One look at an engine's metrics. Counters and totals run from the engine's start: a reader takes
    differences, and skips one where a counter fell (the engine was restarted)."""

    at: float
    source: str
    running: float | None = None
    """Requests in the batch."""
    waiting: float | None = None
    """Requests that the engine has queued."""
    paused: float | None = None
    """Requests that it has preempted and not resumed, where it tells them apart."""
    kv_use: float | None = None
    """Share of the KV memory in use, 0 to 1."""
    capacity: int | None = None
    """KV tokens."""
    reserved_tokens: float | None = None
    """KV memory that is handed out, in tokens."""
    held_tokens: float | None = None
    """Tokens that the running sequences really have in it."""
    movement: tuple[float | None, ...] = ()
    """Counters that move while the engine works; any change is progress."""
    output_tokens: float | None = None
    prompt_tokens: float | None = None
    """Prompt tokens, those found in the prefix cache included unless the engine leaves them out."""
    prefix_queries: float | None = None
    """Prompt tokens looked up in the prefix cache."""
    prefix_hits: float | None = None
    """Of these, found."""
    preemptions: float | None = None
    finished: float | None = None
    """Requests that ended well."""
    aborted: float | None = None
    """Requests whose client left."""
    ttft: Total | None = None
    """Arrival to first token."""
    queue_time: Total | None = None
    """Arrival to the first step."""
    prefill_time: Total | None = None
    """First step to first token, per request. Of prompts that share a step each counts the whole step."""
    prefill_steps: Total | None = None
    """Duration of the steps that took prompts in, where the engine measures them itself."""
    decode_time: Total | None = None
    """First to last token, per request."""
    inter_token: Total | None = None
    """Between two tokens of a sequence: one observation a token after the first, so `count` is decoded
    tokens and the mean is what a step lasts."""
    prompt_lengths: Total | None = None
    """Prompt tokens per finished request."""
    output_lengths: Total | None = None
    """Output tokens per finished request."""
    steps: Total | None = None
    """Tokens per step of the engine: `count` is steps."""
    step_time: Total | None = None
    """Duration of its decode steps, where it measures them itself."""
    loaded: tuple[str, ...] = ()
    """Models in memory, of an engine that loads them when they are asked for (Ollama)."""

    @property
    def load(self) -> float | None:
        """Running + waiting requests."""
        return None if self.running is None else self.running + (self.waiting or 0)


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU, or one MIG instance of it."""

    uuid: str
    index: str = ""
    device: str = ""
    """`nvidia0`."""
    pci: str = ""
    name: str = ""
    """The driver's name of its kind."""
    instance: str = ""
    """MIG instance id; empty for a whole GPU."""
    labels: Mapping[str, str] = field(default_factory=dict, compare=False)
    """All labels of the exporter: `pod`, `Hostname`, ..."""
    memory_used: float | None = None
    """MiB."""
    memory_free: float | None = None
    memory_reserved: float | None = None
    """MiB that the driver keeps: neither used nor free."""
    utilization: float | None = None
    """GPU-Util, 0 to 1: share of time with any kernel running."""
    sm_active: float | None = None
    """Share of multiprocessor time with a warp assigned, 0 to 1."""
    tensor_active: float | None = None
    """Share of time the tensor cores work, 0 to 1."""
    memory_active: float | None = None
    """Share of time the memory interface moves data, 0 to 1."""
    temperature: float | None = None
    """Celsius."""
    power: float | None = None
    """Watts."""
    power_limit: float | None = None
    sm_clock: float | None = None
    """MHz."""
    sm_clock_max: float | None = None
    throttle: int | None = None
    """Why the clock is below its most: bits as NVML's clocks event reasons."""
    xid: int | None = None
    """The last XID error since the driver was loaded; 0: none. It stays after the cause has gone: act on
    `Record.xids`."""
    xid_counts: Mapping[int, float] | None = field(default=None, compare=False)
    """XID -> how often, where the exporter counts."""
    ecc_corrected: float | None = None
    """Single-bit errors since the driver was loaded."""
    ecc_uncorrected: float | None = None
    """Double-bit errors since the driver was loaded."""
    remap_failed: bool | None = None
    """A broken memory row could not be replaced: the card needs service."""

    @property
    def memory_use(self) -> float | None:
        """Share of the memory in use, 0 to 1; what the driver keeps counts as neither."""
        if self.memory_used is None or self.memory_free is None or self.memory_used + self.memory_free <= 0:
            return None
        return self.memory_used / (self.memory_used + self.memory_free)


@dataclass(frozen=True, slots=True)
class CardReading:
    """One look at the GPUs of one backend, folded (`telemetry/cards.py`): a tensor-parallel server is as
    full as its fullest card, as hot as its hottest, and as fast as its slowest."""

    at: float
    source: str
    memory_use: float | None = None
    """Share of the frame buffer in use, 0 to 1, of the fullest card."""
    utilization: float | None = None
    """GPU-Util, 0 to 1, mean."""
    sm_active: float | None = None
    tensor_active: float | None = None
    memory_active: float | None = None
    temperature: float | None = None
    """Celsius, of the hottest card."""
    power: float | None = None
    """Watts, sum."""
    power_limit: float | None = None
    sm_clock: float | None = None
    """MHz, of the slowest card."""
    sm_clock_max: float | None = None
    throttle: int | None = None
    """Bits of all cards together."""
    throttled: tuple[str, ...] = ()
    """The reasons among them that mean less speed than the card has: power, heat, brake."""
    xid: float | None = None
    """The largest last XID error of any card; 0: none."""
    ecc_corrected: float | None = None
    ecc_uncorrected: float | None = None
    remap_failed: bool | None = None
    name: str | None = None
    """The driver's name of the card."""
    cards: int = 0
    members: tuple[Card, ...] = ()


@dataclass(frozen=True, slots=True)
class XidEvent:
    """An XID error that newly came up while it was watched."""

    at: float
    """When it was seen, monotonic ms."""
    code: int
    card: str
    """UUID."""
    index: str = ""


@dataclass(frozen=True, slots=True)
class ContainerReading:
    """The container (or pod) that an engine runs in, as its runtime tells."""

    at: float
    source: str
    """`docker` or `kubernetes`."""
    state: str
    """created, running, paused, restarting, exited, dead; `missing`: there is no such container."""
    exit_code: int | None = None
    """Of the last end; None while it has not ended yet."""
    oom_killed: bool = False
    """The runtime says that the last end was the kernel's, for want of memory."""
    ordered: bool = False
    """The last end was asked for (stop, kill, a deleted pod)."""
    oom_at: float | None = None
    """When the kernel last killed a process in it for want of memory, monotonic ms: a worker may die and
    the container live on."""
    ended_at: float | None = None
    """When it last ended, monotonic ms; None: it was not seen ending."""
    started_at: float | None = None
    """When it last started, wall ms."""
    restarts: int = 0
    """By the runtime itself."""
    error: str = ""
    """The runtime's own words, if it has any."""

    @property
    def running(self) -> bool:
        """Whether its main process runs."""
        return self.state in {"running", "paused"}

    @property
    def out_of_memory(self) -> bool:
        """Whether its last end was for want of memory: the runtime says so, or it was killed (137 =
        128 + SIGKILL) and nobody had asked for that; the host's own out-of-memory killer is not always
        told to the runtime."""
        return self.oom_killed or (self.exit_code == 137 and not self.ordered)


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
    container: ContainerReading | None = None
    models: ModelsReading | None = None
    xids: deque[XidEvent] = field(default_factory=lambda: deque(maxlen=XIDS_KEPT))
    """XID errors of its cards as they came up, oldest first; a value that was there at the first look is
    none."""
    xid_counts: Counter[int] = field(default_factory=Counter)
    """How often each XID error came up while it was watched."""
    indicators: Indicators = field(default_factory=Indicators)
    failures: int = 0
    """Failed looks in a row."""
    failure: str = ""
    """Why the last look failed; empty after a good one."""
    answered_at: float | None = None
    """When the engine last answered anything."""
    notes: dict[str, str] = field(default_factory=dict)
    """What cannot be read and why, by source."""
