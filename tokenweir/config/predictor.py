"""The section `predictor`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tokenweir.config.quantities import ByteSize, Duration
from tokenweir.config.section import Section
from tokenweir.contract.values import Share


class PredictorConfig(Section):
    """How output lengths are predicted, and what the predictor is trained from."""

    enabled: Annotated[
        bool, Field(description="predict by the trained model; false: by running figures only")
    ] = True
    record: Annotated[
        bool, Field(description="keep features of requests with their lengths, to train from")
    ] = True
    sample: Annotated[Share, Field(description="share of the requests that are kept")] = 0.25
    words: Annotated[
        bool,
        Field(
            description="keep hashed words of the last message too; whoever guesses a word can check it: "
            "they are pseudonymous, not anonymous"
        ),
    ] = True
    keep: Annotated[ByteSize, Field(ge=1024**2, description="most that recorded requests take on disk")] = (
        256 * 1024**2
    )
    small_model: Annotated[
        bool,
        Field(
            description="ask a small sentence encoder beside the sidecar too, of requests that wait and of "
            "the first of a session; their last messages go to that process of this host"
        ),
    ] = False
    retrain: Annotated[
        Duration | None,
        Field(
            ge=600_000,
            description="how often the sidecar trains anew, where requirements-train.lock is installed; "
            "null: never",
        ),
    ] = 24 * 3_600_000
