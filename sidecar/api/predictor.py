"""Routes: what the predictor is trained from, and how far that has come."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from pydantic import BaseModel, Field

from sidecar.api.plane import Plane
from sidecar.control_plane import ControlPlane
from sidecar.learning import retraining
from sidecar.learning.recording import count
from tokenweir.recorded import ENOUGH

router = APIRouter(prefix="/api/predictor", tags=["predictor"])


class PredictorView(BaseModel):
    """What is recorded, and the trainings of this sidecar."""

    enabled: bool = Field(description="whether gateways may serve a trained model")
    version: str | None = Field(
        description="the model in service, as the sidecar that leads last saw it; null: running figures serve"
    )
    recorded: int = Field(description="completions on disk, to train from")
    waiting: int = Field(description="completions that are not written yet")
    wanted: int = Field(description="completions from which a training by itself begins")
    missing: list[str] = Field(description="packages that training needs and this sidecar lacks")
    mend: str = Field(description="what to do about that; empty where nothing is missing")
    training: bool = Field(description="whether a training runs")
    last_training: str = Field(description="how the last one ended")


async def _view(plane: ControlPlane) -> PredictorView:
    recording, missing = plane.completions.recording, retraining.missing()
    return PredictorView(
        enabled=plane.config.predictor.enabled,
        version=plane.publisher.predictor or None,
        recorded=await asyncio.to_thread(count, recording.folder),
        waiting=recording.waiting,
        wanted=ENOUGH,
        missing=missing,
        mend=retraining.MEND if missing else "",
        training=plane.retraining.running,
        last_training=plane.retraining.last,
    )


@router.get("", summary="What the predictor is trained from, and whether it can be")
async def predictor(plane: Plane) -> PredictorView:
    return await _view(plane)


@router.post("/flush", summary="Write the recorded completions that are still in memory")
async def flush(plane: Plane) -> PredictorView:
    """A training reads what is on disk; `make train` asks for this first."""
    await plane.completions.recording.flush(plane.config.predictor.keep)
    return await _view(plane)
