"""One backend: its configuration, its telemetry, and the memories of the decisions about it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.control.backlog import Backlog
from sidecar.control.capacity import CapacityEstimate
from sidecar.control.cost import CostEstimate
from sidecar.control.engine_steps import restarted
from sidecar.control.experience import Experience
from sidecar.control.failures import ContainerWatch, FailureWatch
from sidecar.control.foreign import ForeignLoad
from sidecar.control.hardware import Hardware, hardware
from sidecar.control.progress import Progress
from sidecar.control.ramp import Ramp
from sidecar.control.readiness import Readiness
from sidecar.control.warm_up import WarmUp
from sidecar.control.xid import XidWatch
from sidecar.telemetry.health import Look
from sidecar.telemetry.readings import EngineReading, Record
from tokenweir.config.models import BackendConfig, ModelConfig
from tokenweir.contract.records import Role, State


@dataclass(slots=True)
class Member:
    """A backend of the fleet. Times are monotonic ms."""

    config: BackendConfig
    record: Record
    there_at_start: bool = False
    """Whether it was in the fleet when this sidecar started: then one that serves at the first look is no new
    one."""
    address: str | None = None
    draining: bool = False
    """Whether an operator drains it."""
    changing: str | None = None
    """Why it gets no new requests while its engine is started with other arguments."""
    applied_at: float | None = None
    """When its actuator had applied the other arguments, while the engine is awaited with them."""
    leaving_since: float | None = None
    """When it was removed; it is kept as draining until nothing is in flight there."""
    served_at: float | None = None
    """When a request last ended well there."""
    refused: bool = False
    """Whether the last look found no one there."""
    absent: bool = False
    """Whether nobody answered at the last look, be it that none is there or that it took too long."""
    _late: bool = False
    readiness: Readiness = field(default_factory=Readiness)
    progress: Progress = field(default_factory=Progress)
    foreign: ForeignLoad = field(default_factory=ForeignLoad)
    backlog: Backlog = field(default_factory=Backlog)
    capacity: CapacityEstimate = field(default_factory=CapacityEstimate)
    cost: CostEstimate = field(default_factory=CostEstimate)
    experience: Experience = field(default_factory=Experience)
    failures: FailureWatch = field(default_factory=FailureWatch)
    containers: ContainerWatch = field(default_factory=ContainerWatch)
    xids: XidWatch = field(default_factory=XidWatch)
    ramp: Ramp = field(default_factory=Ramp)
    admit: float = 1.0
    """The share that is published: its ramp against those of its peers."""
    warming: WarmUp | None = None
    """While it is warmed with prompts; it gets no requests until then."""
    held_out: str | None = None
    """Why it must get no requests though it may answer: a GPU taken out, a restart."""
    elsewhere: tuple[State, str] | None = None
    """The state in which another sidecar, which leads, changes or warms it, and why."""
    promoted: bool = False
    """Of the role standby, and put into service."""
    passed_over: str | None = None
    """Why other backends of its model are preferred to it."""
    arrived_at: float | None = None
    """When a new engine came up here; until that was taken note of."""
    was_ready: bool = False
    """Whether it ever served."""
    renewed_at: float | None = None
    """When another process was first seen to answer here: after it was away, or by its counters."""
    unpublishable: str = ""
    """Why its figures fit no snapshot; empty: they do."""
    engine: EngineReading | None = None
    """The last reading that the decisions have seen."""
    _hardware: tuple[tuple[object, ...], Hardware] | None = None
    """The last answer of `hardware`, and what it was made of."""
    _looks: int = 0
    _away: bool = False
    """Whether nobody answered at the last look, or the model was loading."""
    _other_engine: bool = False
    """Whether signs of a new process were seen since it last served."""

    @property
    def state(self) -> State:
        """The state that is published: being down or held out wins, then a drain."""
        if self.readiness.state is State.DOWN or self.held_out is not None:
            return State.DOWN
        if self.elsewhere is not None and self.readiness.state is State.READY:
            return self.elsewhere[0]
        if self.drains:
            return State.DRAINING
        if self.readiness.state is State.READY and self.warming is not None:
            return State.STARTING
        return self.readiness.state

    @property
    def drains(self) -> bool:
        """Whether it gets no new requests because somebody wants it empty."""
        return self.draining or self.leaving_since is not None or self.changing is not None

    @property
    def late(self) -> bool:
        """Whether it is down only because it did not answer in time."""
        return self._late and self.readiness.state is State.DOWN and self.held_out is None

    @property
    def forgiven(self) -> bool:
        """Whether it is in service though it did not answer in time at the last look."""
        return self._late and self.readiness.state is State.READY

    @property
    def role(self) -> Role:
        """The role that it has now."""
        return Role.ACTIVE if self.promoted else self.config.role

    @property
    def reason(self) -> str:
        """Why it has its state."""
        if self.held_out is not None:
            return self.held_out
        if self.state is State.STARTING and self.warming is not None:
            return self.warming.text()
        if self.elsewhere is not None:
            return self.elsewhere[1]
        if self.changing is not None and self.readiness.state is not State.READY:
            return f"{self.changing}: {self.readiness.reason}"
        return self.readiness.reason

    def models(self) -> dict[str, str]:
        """Public name -> the engine's name: as configured, else what the engine lists."""
        if self.config.models is not None:
            return self.config.models
        listed = self.record.models.names if self.record.models is not None else ()
        return {name: name for name in listed}

    def group(self) -> str:
        """The group of which only one that serves is restarted at a time."""
        return self.config.group or " ".join(sorted(self.models())) or self.config.id

    def hardware(self, models: dict[str, ModelConfig]) -> Hardware:
        """What it runs on and serves; `models` are the configured ones by name."""
        card = self.record.card.name if self.record.card is not None else None
        served = self.models()
        basis = (self.config, served, card, models)
        if self._hardware is None or basis != self._hardware[0]:
            names = [name for pair in served.items() for name in pair]
            self._hardware = (basis, hardware(self.config, self.record, models, names))
        return self._hardware[1]

    def told_tokens(self) -> int | None:
        """KV capacity as far as it is configured or told by the engine: of it a share is in use."""
        return self.capacity.of(self.config, self.record).tokens

    def kv_tokens(self, models: dict[str, ModelConfig]) -> int | None:
        """KV capacity, where nobody tells it by the facts of GPU and model; `models` as for `hardware`."""
        return self.capacity.of(self.config, self.record, self.hardware(models)).tokens

    def look(self, look: Look, text: str, now: float) -> None:
        """Take a look that a watch just had."""
        before = self.readiness.state
        self.refused, self._late = look is Look.REFUSED, look is Look.LATE
        self.absent = self.refused or self._late
        first, self._looks = self._looks == 0, self._looks + 1
        self.failures.looked(look, before is State.READY, now)
        self.readiness.observe(look, text, now, self.served_at)
        if look is Look.OK and self._away:
            self.renewed_at = now
        if look in {Look.OK, Look.REFUSED, Look.LOADING}:
            self._away = look is not Look.OK
        if look is Look.LOADING:
            self._other_engine = True
        reading = self.record.engine
        if reading is not None and (self.engine is None or reading.at > self.engine.at):
            self._read(reading, now)
        elif reading is None and look is Look.REFUSED and self.readiness.state is State.DOWN:
            # An engine without counters that refused: nothing shows that the old process came back.
            self._other_engine = True
        # A restart may be over between two looks: then only the counters show that another process answers.
        if self.readiness.state is State.READY and (before is not State.READY or self._other_engine):
            established = self.was_ready or (self.there_at_start and first)
            if self._other_engine or not established:
                self.arrived_at = now
            self._other_engine = False
            self.was_ready = True

    def served_before(self) -> None:
        """It served under another sidecar: who does not find it there misses it."""
        self.was_ready = True
        self.failures.served_before()

    def forgive(self, now: float) -> None:
        """Another sidecar forgave that it does not answer in time, for requests that only that one knew of:
        so does this one, until it would know of some itself."""
        if self._late:
            self.served_at = now
            self.readiness.forgive()

    def _read(self, reading: EngineReading, now: float) -> None:
        before, self.engine = self.engine, reading
        if before is not None and restarted(before, reading):
            self._other_engine = True
            self.renewed_at = now
        self.progress.observe(reading)
        self.backlog.observe(reading)
        self.capacity.observe(self.record)
        self.cost.observe(self.record, self.told_tokens(), now)
