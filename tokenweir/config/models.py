"""The whole of `tokenweir.yaml`. Times like `30s` are kept in ms; sizes like `4MiB` in bytes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from tokenweir.config import own_address
from tokenweir.config.actuators import ActuationConfig
from tokenweir.config.backends import BackendConfig, BackendTls
from tokenweir.config.control import (
    BreakerConfig,
    BurstConfig,
    PrecisionConfig,
    RampConfig,
    RestartConfig,
    SessionConfig,
    StandbyConfig,
)
from tokenweir.config.file_name import FileName
from tokenweir.config.keys import KeyConfig, hash_key
from tokenweir.config.limits import LimitConfig, QueueConfig
from tokenweir.config.predictor import PredictorConfig
from tokenweir.config.quantities import Duration
from tokenweir.config.section import Section
from tokenweir.config.servers import Admin, Listen, Redis
from tokenweir.config.transfer import NEEDED, BackendTransferConfig
from tokenweir.contract.records import (
    HeaderSettings,
    HealthSettings,
    Id,
    ModelName,
    PathPrefix,
    Policy,
    PolicySettings,
)

__all__ = [
    "BackendConfig",
    "BackendTls",
    "Config",
    "KeyConfig",
    "LimitConfig",
    "Listen",
    "ModelConfig",
    "Redis",
    "TelemetryConfig",
    "hash_key",
]


class ModelConfig(Section):
    """A public model."""

    name: Annotated[ModelName, Field(description="what clients send as `model`")]
    aliases: Annotated[list[ModelName], Field(description="other names that clients may send for it")] = []
    facts: Annotated[
        str | None, Field(description="name in the table of model facts, for cost and capacity")
    ] = None
    output_prior: Annotated[
        float | None, Field(gt=0, le=1e6, description="median output tokens before any is seen")
    ] = None
    fallback: Annotated[
        ModelName | None,
        Field(description="smaller model that serves in its place, from backends of the role `fallback`"),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class TelemetryConfig(Section):
    """How the sidecar looks at the backends."""

    interval: Annotated[
        Duration, Field(ge=50, le=5_000, description="between two looks at a backend, at most 5s")
    ] = 500
    timeout: Annotated[Duration, Field(ge=50, le=60_000, description="for one look")] = 2000


class LogConfig(Section):
    """Logs."""

    access: Annotated[bool, Field(description="write the access log (JSON lines)")] = True
    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Field(description="of the sidecar's and nginx's own logs"),
    ] = "info"


PolicyName = Annotated[
    str,
    Field(
        description="a policy's name, or shadow:NAME (serve by `serve_by`, log what NAME would have chosen)"
    ),
]


class Config(Section):
    """The whole of `tokenweir.yaml`."""

    listen: Listen = Listen()
    admin: Admin = Admin()
    redis: Redis = Redis()
    backends: Annotated[list[BackendConfig], Field(max_length=1024)] = []
    models: list[ModelConfig] = []
    default_model: Annotated[ModelName | None, Field(description="for requests that name none")] = None
    paths: Annotated[
        dict[PathPrefix, ModelName],
        Field(
            max_length=256,
            description="path prefix -> model, for requests that name none: {/v1/audio/: whisper}; the "
            "longest wins, before `default_model`",
        ),
    ] = {}
    policy: PolicyName = "predictive"
    serve_by: Annotated[Policy, Field(description="what serves while `policy` is shadow:NAME")] = (
        Policy.ROUND_ROBIN
    )
    thresholds: PolicySettings = PolicySettings()
    keys: list[KeyConfig] = []
    limits: LimitConfig = LimitConfig()
    queue: QueueConfig = QueueConfig()
    health: HealthSettings = HealthSettings()
    headers: HeaderSettings = HeaderSettings()
    breaker: BreakerConfig = BreakerConfig()
    burst: BurstConfig = BurstConfig()
    precision: PrecisionConfig = PrecisionConfig()
    ramp: RampConfig = RampConfig()
    standby: StandbyConfig = StandbyConfig()
    restart: RestartConfig = RestartConfig()
    sessions: SessionConfig = SessionConfig()
    predictor: PredictorConfig = PredictorConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    actuators: ActuationConfig = ActuationConfig()
    log: LogConfig = LogConfig()
    gateway_id: Annotated[Id | None, Field(description="null: made once and kept in the state folder")] = None
    state_dir: Annotated[
        FileName, Field(min_length=1, description="run-time files; relative to the configuration file")
    ] = "var"

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, value: str) -> str:
        name = value.removeprefix("shadow:")
        known = [policy.value for policy in Policy]
        if name not in known:
            raise ValueError(
                f"unknown policy; the policies are {', '.join(known)}, or shadow: before one of them"
            )
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems: list[str] = []
        for at, model in enumerate(self.models):
            if model.fallback is not None and model.fallback in {model.name, *model.aliases}:
                problems.append(f"`models[{at}].fallback`: {model.name!r} cannot be its own fallback")
        models = list(enumerate(self.models))
        for places in (
            [(f"backends[{at}].id", backend.id) for at, backend in enumerate(self.backends)],
            [(f"backends[{at}].url", backend.url) for at, backend in enumerate(self.backends)],
            [(f"keys[{at}].id", key.id) for at, key in enumerate(self.keys)],
            [(f"keys[{at}].key_file", key.key_file) for at, key in enumerate(self.keys) if key.key_file],
            [(f"models[{at}].name", model.name) for at, model in models]
            + [(f"models[{at}].aliases", n) for at, model in models for n in {*model.aliases} - {model.name}],
        ):
            first: dict[str, str] = {}
            problems += [
                f"`{place}`: {value!r} is used twice, by `{first[value]}` too; give one of them another"
                for place, value in places
                if first.setdefault(value, place) != place
            ]
        hashed: dict[str, int] = {}
        problems += [
            f"`keys[{at}].sha256`: it is that of `keys[{hashed[key.sha256]}]` too; `tokenweir key` makes one"
            for at, key in enumerate(self.keys)
            if key.sha256 and hashed.setdefault(key.sha256, at) != at
        ]
        problems += [
            f"`backends[{at}].url`: {own_address.ADVICE}"
            for at, backend in enumerate(self.backends)
            # Of an emulated one `up` tells that two parts would take the port.
            if not backend.emulated and own_address.is_own(backend.url, self.listen)
        ]
        adapter = self.sessions.transfer.adapter
        taking = [b for b in self.backends if (b.transfer or BackendTransferConfig()).takes_part(adapter)]
        if self.backends and not taking:
            problems.append(
                f"`sessions.transfer.adapter: {adapter}` needs {NEEDED[adapter]} of each backend that takes "
                "part, and none has it"
            )
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def served_policy(self) -> Policy:
        """The policy that decides."""
        return self.serve_by if self.policy.startswith("shadow:") else Policy(self.policy)

    @property
    def shadow_policy(self) -> Policy | None:
        """The policy that is only logged, if any."""
        return Policy(self.policy.removeprefix("shadow:")) if self.policy.startswith("shadow:") else None
