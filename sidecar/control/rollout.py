"""How engines that have newly come up come into rotation: warmed, then with a growing share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sidecar.control.experience import worse_than_peers
from sidecar.control.fleet import Fleet
from sidecar.control.member import Member
from sidecar.control.model import ModelDecisions
from sidecar.control.ramp import admitted
from sidecar.control.warm_up import WarmUp
from tokenweir.config import Config
from tokenweir.contract.records import State

ARRIVAL_BELIEVED_MS: Final = 10_000
"""An engine that came up longer ago, while this sidecar did not lead, is no new one."""


class Rollout:
    """The warm-ups and ramps of the fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def arrivals(self, config: Config, leading: bool, now: float) -> list[str]:
        """Take note of the engines that have come up; returns those that are to be warmed."""
        to_warm: list[str] = []
        for name, member in self._fleet.members.items():
            if member.readiness.state is not State.READY:
                member.warming = None
            elif leading and member.warming is not None and not self._has_peer(member):
                # The last that served beside it has gone meanwhile.
                member.warming = None
                member.ramp.end()
            if member.arrived_at is None:
                continue
            member.experience.begin(member.arrived_at)
            if not leading:
                if now - member.arrived_at > ARRIVAL_BELIEVED_MS:
                    member.arrived_at = None
                continue
            member.arrived_at = None
            if not self._has_peer(member):
                # Nobody else can serve: it is all there is.
                member.ramp.end()
            elif config.ramp.enabled and config.ramp.warm_up > 0:
                member.warming = WarmUp(now)
                to_warm.append(name)
            else:
                member.ramp.begin(config.ramp, now)
        return to_warm

    def warmed(self, backend: str, config: Config, now: float) -> None:
        """A warm-up is over: the ramp begins."""
        member = self._fleet.members.get(backend)
        if member is not None and member.warming is not None:
            before = member.state
            member.warming = None
            member.ramp.begin(config.ramp, now)
            self._fleet.note(member, before)
            self._share_out()

    def ramps(self, config: Config, models: Mapping[str, ModelDecisions], now: float) -> None:
        """Let the shares grow, where nothing speaks against it."""
        for member in self._fleet.members.values():
            if member.state is State.READY and member.ramp.going_on:
                names = self._fleet.served_models(member)
                peers = [
                    other.experience
                    for other in self._fleet.members.values()
                    if other is not member
                    and other.state is State.READY
                    and not other.ramp.going_on
                    and not names.keys().isdisjoint(self._fleet.served_models(other))
                ]
                worse = worse_than_peers(member.experience, peers, now, config.ramp.worse, config.ramp.errors)
                hurry = any(models[name].refusing for name in names if name in models)
                member.ramp.update(config.ramp, now, worse, hurry)
        self._share_out()

    def _has_peer(self, member: Member) -> bool:
        """Whether another backend that is in service serves one of its models."""
        names = set(self._fleet.served_models(member))
        return any(
            other is not member
            and other.state is State.READY
            and other.role is member.role
            and not names.isdisjoint(self._fleet.served_models(other))
            for other in self._fleet.members.values()
        )

    def _share_out(self) -> None:
        """Reckon what each backend may take from its ramp and those of its peers."""
        groups: dict[str, list[Member]] = {}
        for member in self._fleet.members.values():
            member.admit = 1.0
            if member.state is State.READY:
                for name in self._fleet.served_models(member):
                    groups.setdefault(f"{member.role.value} {name}", []).append(member)
        for members in groups.values():
            if any(member.ramp.going_on for member in members):
                shares = admitted([member.ramp.share for member in members])
                for member, share in zip(members, shares, strict=True):
                    member.admit = min(member.admit, share)
