"""The base of every part of the configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, so that a typing mistake is seen."""

    model_config = ConfigDict(extra="forbid")
