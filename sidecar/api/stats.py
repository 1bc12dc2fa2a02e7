"""Route: what was learned from the completions."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from sidecar.api.measured import IndicatorView, view
from sidecar.api.plane import Plane
from sidecar.clock import wall_ms
from sidecar.telemetry.indicators import deviation
from tokenweir.contract.records import ModelStats

router = APIRouter(prefix="/api/stats", tags=["stats"])


class StatsView(BaseModel):
    """The running figures and how complete they are."""

    version: int
    models: dict[str, ModelStats]
    records: int = Field(description="counted since this sidecar started")
    batches: int
    lost: int = Field(description="made by a gateway and not come in time")
    missing: int = Field(description="overtaken by later ones; they may still come")
    repeated: int = Field(description="come twice, counted once")
    poisoned: dict[str, int] = Field(description="refused, by reason")
    prediction_deviation: dict[str, IndicatorView] = Field(
        description="by model; without a name: of all together"
    )


@router.get("", summary="Running figures of the outputs per model")
async def stats(plane: Plane) -> StatsView:
    completions = plane.completions
    return StatsView(
        version=completions.version,
        models=completions.figures.published(),
        records=completions.records,
        batches=completions.batches,
        lost=completions.lost,
        missing=completions.sources.missing,
        repeated=completions.sources.repeated,
        poisoned=dict(completions.poisoned),
        prediction_deviation={
            model: view(deviation(figures.deviation, figures.answers))
            for model, figures in completions.deviation.figures(wall_ms()).items()
        },
    )
