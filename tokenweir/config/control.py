"""The parts of `tokenweir.yaml` that set the control loop: breaker, ramp, spares, restarts, burst, precision.
What each decision does with them: `docs/control.md`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from tokenweir.config.quantities import TIME, Duration, InMs
from tokenweir.config.section import Section
from tokenweir.config.transfer import TransferConfig
from tokenweir.contract.values import MaxTokens, MovedMs, RememberedMs

ShareOf = Annotated[float, Field(gt=0, le=1)]


class BreakerRule(StrEnum):
    """When levels 1 and 2 hold."""

    WAIT = "wait"
    """Memory use over the threshold for `hold`, and somebody has waited longer than `wait_share` of the
    limit: the queue comes first."""
    LITERAL = "literal"
    """Memory use over the threshold at any moment."""


class BreakerConfig(Section):
    """The breaker's levels 1, 2 and 4 (level 3 is `restart`)."""

    enabled: Annotated[bool, Field(description="levels 1 and 2")] = True
    rule: Annotated[
        BreakerRule,
        Field(description="wait: only once the queue does not help; literal: at once by memory use alone"),
    ] = BreakerRule.WAIT
    refuse_new: Annotated[
        ShareOf, Field(description="level 1: memory use over which new sessions are refused")
    ] = 0.90
    drop_low: Annotated[
        ShareOf, Field(description="level 2: memory use over which low priority is dropped")
    ] = 0.95
    hold: Annotated[Duration, Field(description="how long the use must stay over the threshold first")] = 5000
    wait_share: Annotated[
        ShareOf,
        Field(
            description="share of its class's longest wait (`queue.max_wait`) that somebody must have waited"
        ),
    ] = 0.5
    release: Annotated[
        float, Field(ge=0, lt=1, description="how far below its threshold the use must fall to end a level")
    ] = 0.05
    stay: Annotated[Duration, Field(description="shortest time that a level holds")] = 10_000
    quorum: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="level 4: with a smaller share of its backends usable, a model goes to the role "
            "`fallback`",
        ),
    ] = 0.5
    quorum_hold: Annotated[
        Duration, Field(description="level 4: how long enough backends must be back to end it")
    ] = 5000

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.drop_low < self.refuse_new:
            raise ValueError("`drop_low` (level 2) must not be below `refuse_new` (level 1)")
        if self.release >= self.refuse_new:
            raise ValueError("`release` must be smaller than `refuse_new`, or a level never ends")
        return self


class BurstRule(StrEnum):
    """When burst mode begins."""

    LOADED = "loaded"
    """Arrivals jumped, and the fleet is loaded or requests wait."""
    LITERAL = "literal"
    """Arrivals jumped."""


class BurstConfig(Section):
    """Burst mode: while arrivals jump, answers are kept short."""

    enabled: Annotated[bool, Field(description="whether there is a burst mode")] = True
    rule: Annotated[
        BurstRule, Field(description="loaded: only when the fleet is loaded too; literal: by arrivals alone")
    ] = BurstRule.LOADED
    jump: Annotated[
        float, Field(gt=0, le=100, description="growth over the usual rate; 2 is +200 %, three times as many")
    ] = 2.0
    load: Annotated[
        ShareOf, Field(description="memory use over which the fleet counts as loaded; waiting counts too")
    ] = 0.7
    least_arrivals: Annotated[
        int,
        Field(
            ge=0,
            le=100_000,
            description="requests within a second below which nothing is a jump (not with `rule: literal`)",
        ),
    ] = 10
    max_tokens: Annotated[MaxTokens, Field(description="longest answer, tokens")] = 256
    stay: Annotated[Duration, Field(description="shortest time that it holds")] = 10_000


class PrecisionRule(StrEnum):
    """Which variant of a model is preferred where backends hold several."""

    AUTO = "auto"
    """The best quality, and under memory pressure what saves memory."""
    LITERAL = "literal"
    """The article's: under memory pressure fp16, else fp8 where the GPU computes in it."""
    OFF = "off"
    """None: the policy decides by cost alone."""


class PrecisionConfig(Section):
    """Variants of one model (fp16, fp8, int4) behind one name."""

    rule: Annotated[
        PrecisionRule,
        BeforeValidator(lambda given: "off" if given is False else given),  # YAML reads a bare off as false
        Field(description="auto: quality, under pressure what saves memory; literal: the article's; off"),
    ] = PrecisionRule.AUTO
    pressure: Annotated[ShareOf, Field(description="memory use from which there is pressure")] = 0.7
    release: Annotated[
        float, Field(ge=0, lt=1, description="how far below it the use must fall to end the pressure")
    ] = 0.1
    stay: Annotated[Duration, Field(description="shortest time that a preference holds")] = 10_000


class RampConfig(Section):
    """How a backend that is new, restarted or promoted comes into rotation."""

    enabled: Annotated[bool, Field(description="false: at once in full")] = True
    start: Annotated[ShareOf, Field(description="of its fair share, at first")] = 0.05
    per_minute: Annotated[ShareOf, Field(description="by how much that grows each minute")] = 0.05
    hurry: Annotated[
        float, Field(ge=1, le=1000, description="how many times faster it grows while others are refusing")
    ] = 12
    worse: Annotated[
        float,
        Field(
            gt=1, le=100, description="it pauses while its time to first token is so many times the peers'"
        ),
    ] = 2.0
    errors: Annotated[
        float, Field(gt=0, le=1, description="it pauses while this share more of its requests fail")
    ] = 0.05
    warm_up: Annotated[
        int, Field(ge=0, le=100, description="most prompts that it is warmed with first; 0: none")
    ] = 8
    warm_up_limit: Annotated[Duration, Field(description="longest warm-up")] = 60_000


class StandbyConfig(Section):
    """When backends of the role `standby` are put into service."""

    promote: Annotated[
        ShareOf, Field(description="forecast memory use over which the next one is promoted")
    ] = 0.75
    demote: Annotated[ShareOf, Field(description="use without it below which the last one goes back")] = 0.45
    horizon: Annotated[Duration, Field(description="how far ahead the forecast looks")] = 120_000
    hold: Annotated[Duration, Field(description="how long the forecast must stay over `promote`")] = 3000
    idle: Annotated[Duration, Field(description="how long the use must stay below `demote`")] = 600_000
    stop: Annotated[
        bool, Field(description="whether one that goes back is also stopped, where it has an actuator")
    ] = False

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.demote >= self.promote:
            raise ValueError("`demote` must be below `promote`, or a backend goes back as soon as it comes")
        return self


class RestartConfig(Section):
    """Level 3: restarts of engines through their actuators, and when to leave it."""

    enabled: Annotated[bool, Field(description="needs an `actuator` of the backend")] = True
    most_per_hour: Annotated[
        int, Field(ge=0, le=1000, description="restarts of one backend; then it stays out and an alert goes")
    ] = 3
    back_off: Annotated[Duration, Field(description="between two restarts of one backend, at first")] = 10_000
    back_off_most: Annotated[Duration, Field(description="doubles each time up to this")] = 600_000
    crash_hold: Annotated[
        Duration, Field(description="how long an engine that served must refuse connections to be restarted")
    ] = 1500
    give_up: Annotated[
        Duration,
        Field(description="how long a restarted engine may take to serve before it counts as failed"),
    ] = 900_000


class SessionConfig(Section):
    """What makes requests one session. `X-Session-ID` and `prompt_cache_key` always name one; without them a
    hash of the model and the first messages does."""

    by_user: Annotated[
        bool, Field(description="whether the member `user` names a session (in many clients it is constant)")
    ] = False
    memory: Annotated[
        RememberedMs, InMs, TIME, Field(description="how long after its last request one is known")
    ] = 3_600_000
    affinity: Annotated[
        bool, Field(description="whether sessions stay at their places; false: every request by itself")
    ] = True
    prefixes: Annotated[
        bool, Field(description="whether equal beginnings of prompts count as cached where one was served")
    ] = True
    move: Annotated[MovedMs, InMs, TIME, Field(description="how long a move lasts beyond its last use")] = (
        600_000
    )
    transfer: TransferConfig = TransferConfig()
