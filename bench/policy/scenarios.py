"""The cells of the bench, read from `scenarios.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from bench.policy import traces, workload
from bench.policy.figures import Objectives
from bench.policy.job import Job
from bench.policy.server import Server, ServerSpec
from bench.policy.workload import Burst
from emulator.engine import Exhaustion
from tokenweir import facts

FILE: Final = Path(__file__).with_name("scenarios.yaml")
COARSE_FROM: Final = 200
"""Servers from which streams are brought up to date in steps instead of at every decision."""
COARSE_MS: Final = 100.0


class Part(BaseModel):
    """Servers of one kind in a fleet."""

    model_config = ConfigDict(extra="forbid")

    count: int = Field(ge=1, le=5000)
    gpu: str = "A100-80G"
    model: str = "llama-2-13b"
    precision: str = "fp16"
    slowdown: float = Field(default=1.0, gt=0)
    ready_s: float = Field(default=0.0, ge=0)


class BurstSpec(BaseModel):
    """A time in which requests come faster."""

    model_config = ConfigDict(extra="forbid")

    at: float
    seconds: float
    factor: float = Field(gt=0)


class ObjectivesSpec(BaseModel):
    """What a good request meets."""

    model_config = ConfigDict(extra="forbid")

    ttft_ms: float = 1000.0
    prefill_tokens_per_s: float = 4000.0
    tpot_ms: float = 80.0


class Cell(BaseModel):
    """One cell: what comes, to whom, how fast."""

    model_config = ConfigDict(extra="forbid")

    about: str
    workload: dict[str, float]
    fleet: str
    kind: Exhaustion
    capacity: int | None = None
    rate: float = Field(gt=0)
    requests: int | None = Field(default=None, ge=10)
    delay_ms: float = Field(default=0.0, ge=0)
    restart_s: float = Field(default=60.0, ge=0)
    bursts: list[BurstSpec] = []
    objectives: ObjectivesSpec = ObjectivesSpec()
    policies: list[str] | None = None

    def goals(self) -> Objectives:
        """The objectives as the figures take them."""
        return Objectives(**self.objectives.model_dump())


class Scenarios(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid")

    seeds: list[int] = Field(min_length=1)
    tuning_seeds: list[int] = Field(min_length=1)
    requests: int = Field(ge=10)
    fleets: dict[str, list[Part]]
    cells: dict[str, Cell]

    @model_validator(mode="after")
    def _known(self) -> Scenarios:
        for name, cell in self.cells.items():
            if cell.fleet not in self.fleets:
                raise ValueError(f"cells.{name}.fleet: no fleet is named {cell.fleet!r}")
            for trace in cell.workload:
                if trace not in traces.SOURCES:
                    raise ValueError(
                        f"cells.{name}.workload: no trace is named {trace!r}; known: "
                        + ", ".join(traces.SOURCES)
                    )
        return self

    def specs(self, cell: Cell) -> list[ServerSpec]:
        """The servers of a cell."""
        hash_tokens = traces.MOONCAKE_BLOCK if "mooncake" in cell.workload else facts.BLOCK
        return [
            ServerSpec(
                gpu=part.gpu,
                model=part.model,
                precision=part.precision,
                capacity=cell.capacity,
                kind=cell.kind,
                slowdown=part.slowdown,
                ready_at=part.ready_s * 1000,
                restart_ms=cell.restart_s * 1000,
                hash_tokens=hash_tokens,
            )
            for part in self.fleets[cell.fleet]
            for _ in range(part.count)
        ]

    def jobs(
        self, cell: Cell, seed: int, *, count: int | None = None, rate: float | None = None
    ) -> tuple[list[Job], int]:
        """The requests of a cell, and how many of the trace were left out as longer than its smallest
        server."""
        longest = min(spec.kv_tokens for spec in self.specs(cell))
        return workload.build(
            cell.workload,
            count=count or cell.requests or self.requests,
            rate=rate or cell.rate,
            seed=seed,
            longest=longest,
            bursts=[Burst(**burst.model_dump()) for burst in cell.bursts],
        )

    def servers(self, cell: Cell) -> list[Server]:
        """Fresh servers of a cell."""
        return [Server(spec) for spec in self.specs(cell)]


def load(path: Path = FILE) -> Scenarios:
    """Read the scenarios. Raises pydantic's ValidationError, which names what is wrong."""
    document: Any = yaml.safe_load(path.read_text())
    return Scenarios.model_validate(document)
