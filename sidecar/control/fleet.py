"""The fleet: all that is known of each backend, and the decisions put together for the snapshot."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from sidecar.clock import monotonic_ms, wall_ms
from sidecar.control import credentials, drain
from sidecar.control.cost import CostEstimate
from sidecar.control.gateways import Gateways
from sidecar.control.hardware import Hardware
from sidecar.control.kv_size import movable_kv_bytes
from sidecar.control.member import Member
from sidecar.control.memory import memory_use
from sidecar.control.scores import scores
from sidecar.telemetry.health import Look
from sidecar.telemetry.readings import Record
from tokenweir.config.models import BackendConfig, ModelConfig
from tokenweir.config.transfer import TransferConfig
from tokenweir.contract.records import Backend, Cost, Role, State

log = structlog.get_logger(__name__)

EVENTS_KEPT: Final = 1000
REASONS_MOST: Final = 24
CARD_BELIEVED_MS: Final = 30_000
"""How long a card's word that it is throttled holds."""
LOAD_BELIEVED_MS: Final = 10_000
LEAVING_LEAST_MS: Final = 1000
"""A removed backend drains at least so long: requests just sent are not in a lease that was read yet."""


@dataclass(frozen=True, slots=True)
class Event:
    """A change of a backend's state."""

    time_ms: int
    backend: str
    before: str
    after: str
    reason: str


class Fleet:
    """All members by id."""

    def __init__(self, gateways: Gateways) -> None:
        self.members: dict[str, Member] = {}
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self.models: dict[str, ModelConfig] = {}
        self.transfer = TransferConfig()
        """How caches of sessions that move are moved."""
        self._gateways = gateways
        self._groups: dict[str, str] = {}
        self._begun = False

    def set_models(self, models: Iterable[ModelConfig]) -> None:
        """The configured models."""
        self.models = {model.name: model for model in models}

    def set_members(self, configs: Iterable[BackendConfig], draining: set[str]) -> None:
        """Bring the members in line with the configuration. A changed one keeps its memories unless its
        address or engine changed; a removed one leaves once it is empty."""
        wanted = {config.id: config for config in configs}
        for backend_id, config in wanted.items():
            member = self.members.get(backend_id)
            if member is None or (member.config.url, member.config.engine) != (config.url, config.engine):
                member = self.members[backend_id] = Member(config, Record(), there_at_start=not self._begun)
            member.config = config
            member.draining = backend_id in draining
            member.promoted = member.promoted and config.role is Role.STANDBY
            member.leaving_since = None
        for backend_id, member in self.members.items():
            if backend_id not in wanted:
                member.leaving_since = member.leaving_since or monotonic_ms()
        self._begun = True
        self._groups = credentials.groups({m.config.id: m.config for m in self.members.values()})

    def sweep(self, longest_ms: float) -> list[str]:
        """Forget the removed members that are empty, or were removed `longest_ms` ago; their ids."""
        now = monotonic_ms()
        gone = [
            backend_id
            for backend_id, member in self.members.items()
            if member.leaving_since is not None
            and now - member.leaving_since >= LEAVING_LEAST_MS
            and (
                member.state is State.DOWN
                or self.drain_progress(backend_id).done
                or not self._gateways.leases
                or now - member.leaving_since >= longest_ms
            )
        ]
        for backend_id in gone:
            del self.members[backend_id]
        return gone

    def forget(self, backend_id: str) -> None:
        """Drop a member at once."""
        self.members.pop(backend_id, None)

    def observe(self, backend_id: str, look: Look, text: str, now: float) -> bool:
        """Take a look that a watch just had; returns whether the backend's state changed."""
        member = self.members.get(backend_id)
        if member is None:
            return False
        before = member.state
        seen = member.engine
        member.look(look, text, now)
        reading = member.engine
        if reading is not None and reading is not seen:
            leased, held = self._gateways.leased(backend_id)
            member.foreign.observe(reading, leased, held, member.told_tokens())
        return self.note(member, before)

    def served(self, backend_id: str, now: float) -> None:
        """A request ended well on the backend."""
        member = self.members.get(backend_id)
        if member is not None:
            member.served_at = now

    def decide(self, now: float) -> list[Backend]:
        """The backends of the snapshot, at monotonic `now`. One without an address is left out: a gateway
        could not reach it."""
        return [self._told(m, now) for m in self.members.values() if m.address is not None]

    def _told(self, member: Member, now: float) -> Backend:
        """One backend; where its figures fit no snapshot, without them: the others must not suffer."""
        try:
            backend = self._backend(member, now)
        except (ValueError, ArithmeticError) as error:
            reason = " ".join(str(error).split())[:300]
            if member.unpublishable != reason:
                log.error("backend_figures_refused", backend=member.config.id, reason=reason)
            member.unpublishable = reason
            cost, cost_reason = CostEstimate().of(member.hardware(self.models))
            what = "its figures cannot be published, the sidecar's log says why"
            return Backend(
                **self._identity(member), cost=cost, reasons=[self._state_reason(member), what, cost_reason]
            )
        member.unpublishable = ""
        return backend

    def _identity(self, member: Member) -> dict[str, Any]:
        """What is known of a backend without asking it, and what was decided about it."""
        config = member.config
        return {
            "id": config.id,
            "host": member.address or "",
            "port": config.port,
            "tls": config.secure,
            "tls_verify": config.tls.verify,
            "sni": credentials.server_name(config),
            "host_header": credentials.host_header(config),
            "credential_group": self._groups.get(config.id, ""),
            "wants_key": config.api_key_file or "",
            "models": self.served_models(member),
            "role": member.role,
            "state": member.state,
            "admit": member.admit,
            "weight": config.weight,
            "precision": member.hardware(self.models).precision,
            "engine": member.record.engine_kind,
            "scrape_failures": member.record.failures,
            "refused": member.refused,
            "late": member.late,
        }

    def _backend(self, member: Member, now: float) -> Backend:
        config, record = member.config, member.record
        memory = memory_use(config, record, now)
        known = member.hardware(self.models)
        capacity = member.capacity.of(config, record, known)
        cost, cost_reason = self._cost(member, known, now)
        foreign, foreign_reason = member.foreign.now(now)
        lets_in, backlog_reason = member.backlog.now(now)
        kv_bytes, kv_reason = movable_kv_bytes(self.transfer, config, known.model)
        low, high = (None, None) if memory.use is None else scores(memory.use)
        score_reason = f"scores: low {low:.1f}, high {high:.1f}" if low is not None else None
        engine = record.engine
        age = max(now - engine.at, 0.0) if engine is not None else None
        load = engine.load if engine is not None and age is not None and age <= LOAD_BELIEVED_MS else None
        reasons = [
            self._state_reason(member),
            member.ramp.reason,
            member.passed_over,
            memory.reason,
            score_reason,
            capacity.reason,
            cost_reason,
            foreign_reason,
            backlog_reason,
            kv_reason,
            *(f"{source}: {text}" for source, text in record.notes.items()),
        ]
        return Backend(
            **self._identity(member),
            memory=memory.use,
            memory_age_ms=memory.age_ms,
            load=load,
            load_age_ms=None if load is None else age,
            capacity=capacity.tokens,
            context=capacity.context,
            concurrency=capacity.concurrency,
            lets_in=lets_in,
            kv_bytes=kv_bytes,
            cost=cost,
            foreign=foreign,
            low=low,
            high=high,
            progress_age_ms=member.progress.age_ms(now, record.failures),
            reasons=[reason for reason in reasons if reason][:REASONS_MOST],
        )

    def _cost(self, member: Member, known: Hardware, now: float) -> tuple[Cost, str]:
        card = member.record.card
        throttled = card is not None and now - card.at <= CARD_BELIEVED_MS and bool(card.throttled)
        return member.cost.of(known, now, throttled)

    def served_models(self, member: Member) -> dict[str, str]:
        """Public name -> the engine's name, with the models that it serves as the fallback of."""
        own = member.models()
        if member.role is not Role.FALLBACK:
            return own
        stands_in = {
            name: own[model.fallback]
            for name, model in self.models.items()
            if model.fallback in own and name not in own
        }
        return {**own, **stands_in} if stands_in else own

    def _state_reason(self, member: Member) -> str:
        reason = self.reason(member)
        if member.state is State.DRAINING:
            return f"state: {reason}"
        return f"state: {member.state.value}: {reason}"

    def reason(self, member: Member) -> str:
        """Why a member has its state; of one that drains, how far that has come."""
        if member.state is State.DRAINING:
            progress = self.drain_progress(member.config.id).reason
            change = member.elsewhere[1] if member.elsewhere is not None else member.changing
            return progress if change is None else f"{change}: {progress}"
        return member.reason

    def drain_progress(self, backend_id: str) -> drain.Drain:
        """How far the drain of a backend has come."""
        gateways = len(self._gateways.leases) if self._gateways.known else 0
        return drain.progress(self._gateways.in_flight(backend_id), gateways)

    def note(self, member: Member, before: State) -> bool:
        """Keep a change of a member's state as an event; returns whether it changed."""
        after = member.state
        if after is before:
            return False
        reason = self.reason(member)
        self.events.append(Event(wall_ms(), member.config.id, before.value, after.value, reason))
        return True
