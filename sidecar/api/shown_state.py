"""The state of a backend as people are told it."""

from __future__ import annotations

from typing import Final

from sidecar.control.member import Member
from sidecar.control_plane import ControlPlane
from tokenweir.contract.records import Role, State

AT_REST: Final = "standby"
SHOWN: Final = (
    "the state for people: `standby` of a spare that is stopped while it is not needed, which is no fault"
)


def shown_state(plane: ControlPlane, member: Member) -> str:
    """Its state, or `standby`."""
    return AT_REST if stopped_on_purpose(plane, member) else member.state.value


def shown_reason(plane: ControlPlane, member: Member) -> str:
    """Why it has the state that is shown."""
    reason = plane.fleet.reason(member)
    return f"stopped while it is not needed ({reason})" if stopped_on_purpose(plane, member) else reason


def stopped_on_purpose(plane: ControlPlane, member: Member) -> bool:
    """Whether this is a spare that is away because nobody needs it: it can be started, was not put into
    service, and either never served or is stopped by what `standby.stop` says. One that hangs is not."""
    container = member.record.container
    return (
        member.config.role is Role.STANDBY
        and member.state is State.DOWN
        and not (member.promoted or member.drains or member.held_out)
        and plane.can_act(member.config.id)
        and (plane.config.standby.stop or not member.was_ready)
        and (not container.running if container is not None else not member.late)
    )
