"""Routes: which policy serves, and the live switch."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from sidecar.api.plane import Admin, Plane
from sidecar.api.problems import ProblemAnswer
from sidecar.control_plane import ControlPlane
from tokenweir.contract.records import Policy

router = APIRouter(prefix="/api/policy", tags=["policy"])


class PolicyView(BaseModel):
    """The policy in effect."""

    policy: str = Field(description="as set: a name, or shadow:NAME")
    serves: Policy
    shadow: Policy | None
    known: list[str]


class PolicyChange(BaseModel):
    """The wanted policy."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"policy": "round_robin"}, {"policy": "shadow:predictive", "serve_by": "least_conn"}]
        },
    )
    policy: str
    serve_by: str | None = Field(default=None, description="what serves while `policy` is shadow:NAME")


def _view(plane: ControlPlane) -> PolicyView:
    return PolicyView(
        policy=plane.config.policy,
        serves=plane.config.served_policy,
        shadow=plane.config.shadow_policy,
        known=[policy.value for policy in Policy],
    )


@router.get("", summary="The policy in effect")
async def get_policy(plane: Plane) -> PolicyView:
    return _view(plane)


@router.put("", summary="Switch the policy", responses={422: {"model": ProblemAnswer}})
async def set_policy(plane: Plane, admin: Admin, change: PolicyChange) -> PolicyView:
    """Holds from the next snapshot on, which is published at once; gateways follow within 0.1 s."""
    admin.set_policy(change.policy, change.serve_by)
    return _view(plane)
