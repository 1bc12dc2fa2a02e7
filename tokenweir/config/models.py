"""The models of `tokenweir.yaml`. Times like `30s` are kept in ms; sizes like `4MiB` in bytes."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from tokenweir.config.actuators import ActuationConfig, ActuatorConfig, WeightsConfig
from tokenweir.config.quantities import ByteSize, Duration
from tokenweir.config.section import Section
from tokenweir.contract.records import (
    HeaderSettings,
    HealthSettings,
    Id,
    ModelName,
    PathPrefix,
    Policy,
    PolicySettings,
    Priority,
    Role,
)

Port = Annotated[int, Field(ge=1, le=65535)]
Engine = Literal["auto", "vllm", "sglang", "tgi", "llamacpp", "trtllm", "ollama"]


class ServerTls(Section):
    """TLS towards clients."""

    certificate: Annotated[str, Field(description="PEM file: the certificate and its chain")]
    key: Annotated[str, Field(description="PEM file: the private key")]


class Listen(Section):
    """Where the gateway listens."""

    address: Annotated[str, Field(description="0.0.0.0 or :: lets other machines in; set `keys` then")] = (
        "127.0.0.1"
    )
    port: Annotated[Port, Field(description="TCP port for clients")] = 8080
    tls: ServerTls | None = None
    workers: Annotated[int | Literal["auto"], Field(description="nginx worker processes")] = "auto"
    metrics_port: Annotated[
        Port | None,
        Field(description="loopback port of the gateway's /metrics; null: the listen port + 1000"),
    ] = None

    @field_validator("address")
    @classmethod
    def _plain_address(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9.:_\[\]-]+", value):
            raise ValueError("an IP address or a host name is wanted")
        return value


class Admin(Section):
    """The sidecar's admin API, dashboard and metrics."""

    address: Annotated[str, Field(description="beyond loopback only with a token")] = "127.0.0.1"
    port: Annotated[Port, Field(description="TCP port for operators and Prometheus")] = 8081
    token: Annotated[
        str | None,
        Field(min_length=16, description="bearer token; without one the API answers on loopback only"),
    ] = None
    token_file: Annotated[str | None, Field(description="file that holds the token")] = None
    files_dir: Annotated[
        str,
        Field(min_length=1, description="folder below which backends added by the admin API may name files"),
    ] = "secrets"

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if self.token and self.token_file:
            raise ValueError("give `token` or `token_file`, not both")
        loopback = self.address in {"127.0.0.1", "::1", "localhost"}
        if not loopback and not (self.token or self.token_file):
            raise ValueError(
                f"`address` {self.address} is reachable from outside: set `token_file` (or `token`), "
                "or listen on 127.0.0.1"
            )
        return self


class Redis(Section):
    """Where Redis is. The gateway and the sidecar each have a user of their own."""

    host: Annotated[
        str, Field(description="name or address; not set: `make up` starts a Redis of its own")
    ] = "127.0.0.1"
    port: Annotated[Port, Field(description="for the Redis of `make up`: 16379 unless set")] = 6379
    db: Annotated[int, Field(ge=0, le=15, description="database number")] = 0
    tls: Annotated[bool, Field(description="TLS to Redis")] = False
    ca: Annotated[str | None, Field(description="PEM file that verifies the server")] = None
    gateway_user: Annotated[str | None, Field(description="ACL user of the gateways")] = None
    gateway_password_file: Annotated[str | None, Field(description="file with its password")] = None
    sidecar_user: Annotated[str | None, Field(description="ACL user of the sidecars")] = None
    sidecar_password_file: Annotated[str | None, Field(description="file with its password")] = None


class BackendTls(Section):
    """TLS towards a backend."""

    verify: Annotated[bool, Field(description="check the server's certificate")] = True
    ca: Annotated[str | None, Field(description="PEM file; null: the system's")] = None
    server_name: Annotated[str | None, Field(description="expected name; null: the URL's host")] = None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _models(value: Any) -> Any:
    if isinstance(value, str):
        return {value: value}
    if isinstance(value, list):
        return {name: name for name in value}
    return value


def _cards(value: Any) -> Any:
    if isinstance(value, int | str) and not isinstance(value, bool):
        value = [value]
    if isinstance(value, list):
        return [str(card) if isinstance(card, int) and not isinstance(card, bool) else card for card in value]
    return value


class BackendConfig(Section):
    """One inference server. Only `url` is needed: the rest is asked of the engine or has a sound default."""

    url: Annotated[str, Field(description="http://host:port or https://host")]
    id: Annotated[Id, Field(description="name in headers, logs, metrics; null: made from the address")] = ""
    engine: Annotated[Engine, Field(description="kind of server; auto: found out from its answers")] = "auto"
    models: Annotated[
        dict[ModelName, ModelName] | None,
        BeforeValidator(_models),
        Field(
            description="list of names, or public name -> the engine's name; null: what its /v1/models lists"
        ),
    ] = None
    gpu: Annotated[
        str | None, Field(description="kind, for the first cost figures: A100-80G, H100, T4, ...")
    ] = None
    gpus: Annotated[int, Field(ge=1, le=64, description="GPUs of this server (tensor parallel)")] = 1
    precision: Annotated[str, Field(max_length=16, description="of the weights: fp16, fp8, int4, ...")] = ""
    role: Annotated[
        Role, Field(description="standby and fallback get requests only when they are needed")
    ] = Role.ACTIVE
    weight: Annotated[float, Field(gt=0, le=1e6, description="share of requests against the others")] = 1
    kv_capacity: Annotated[int | None, Field(gt=0, description="KV tokens; null: as the engine tells")] = None
    context: Annotated[
        int | None, Field(gt=0, description="longest prompt + output; null: as the engine tells")
    ] = None
    concurrency: Annotated[int | None, Field(gt=0, description="most requests at once")] = None
    memory: Annotated[
        Literal["auto", "kv", "card"],
        Field(description="what counts as memory use; auto: KV where the engine tells it, else the card's"),
    ] = "auto"
    metrics_url: Annotated[str | None, Field(description="null: url + /metrics")] = None
    dcgm_url: Annotated[
        str | None,
        Field(description="DCGM exporter, or the agent, of this server's GPUs: http://gpu-a:9400/metrics"),
    ] = None
    nvml: Annotated[
        bool, Field(description="read the GPUs of the sidecar's own host by NVML, without an exporter")
    ] = False
    cards: Annotated[
        list[str],
        BeforeValidator(_cards),
        Field(
            max_length=64, description="which GPUs of the host: index, UUID, device or PCI bus id; empty: all"
        ),
    ] = []
    card_labels: Annotated[
        dict[str, str],
        Field(max_length=16, description="which GPUs, by the exporter's labels, for example {pod: vllm-a-0}"),
    ] = {}
    api_key_file: Annotated[
        str | None, Field(max_length=1024, description="file with the key that this server wants")
    ] = None
    host_header: Annotated[
        str | None, Field(max_length=260, description="Host for the server; null: the URL's")
    ] = None
    tls: BackendTls = BackendTls()
    actuator: Annotated[
        ActuatorConfig | None,
        Field(description="how the engine is restarted; null: by nobody. Not settable by the admin API"),
    ] = None
    weights: Annotated[
        WeightsConfig | None,
        Field(description="weights to be read ahead of a start. Not settable by the admin API"),
    ] = None
    emulated: Annotated[
        bool, Field(description="`make up` starts an emulated GPU server at this address, of this `gpu`")
    ] = False

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"url": value} if isinstance(value, str) else value

    @field_validator("metrics_url", "dcgm_url")
    @classmethod
    def _page_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"not a URL: {error}") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
            raise ValueError("a page is wanted, for example http://10.0.0.11:9400/metrics")
        if parts.username or parts.password:
            raise ValueError("no user or password belongs in the URL")
        return value

    @field_validator("url")
    @classmethod
    def _plain_url(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"not a URL: {error}") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("a URL that begins with http:// or https:// is wanted")
        if parts.path not in {"", "/"} or parts.query or parts.fragment:
            raise ValueError(
                "only scheme, host and port belong here; the client's path (/v1/...) is passed on as it is"
            )
        if parts.username or parts.password:
            raise ValueError("no user or password belongs in the URL; use `api_key_file`")
        if port == 0:
            raise ValueError("port 0 is no port")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _card_source(self) -> Self:
        if self.dcgm_url and self.nvml:
            raise ValueError("`dcgm_url` and `nvml` tell the same: give one")
        if (self.cards or self.card_labels) and not (self.dcgm_url or self.nvml):
            raise ValueError(
                "`cards` and `card_labels` choose among what `dcgm_url` or `nvml` shows: give one"
            )
        return self

    @model_validator(mode="after")
    def _verifiable(self) -> Self:
        """nginx compares a certificate with names only, never with IP addresses."""
        if not self.secure or not self.tls.verify:
            return self
        if _is_address(self.tls.server_name or self.host):
            raise ValueError(
                "the certificate of a server that is given by its IP address cannot be verified: set "
                "`tls: {server_name: ...}` to a name in it, or `tls: {verify: false}`"
            )
        return self

    @model_validator(mode="after")
    def _default_id(self) -> Self:
        if not self.id:
            parts = urlsplit(self.url)
            text = re.sub(r"[^A-Za-z0-9.]+", "-", f"{parts.hostname}-{self.port}").strip("-.")
            self.id = text[:64]
        return self

    @classmethod
    def file_only(cls) -> set[str]:
        """Keys that name programs, sockets and files of the sidecar's host: only `tokenweir.yaml` sets them,
        neither the admin API nor what comes through Redis."""
        return {"actuator", "weights"}

    @property
    def host(self) -> str:
        """Host name or address of the URL."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Port of the URL, or its scheme's."""
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    @property
    def secure(self) -> bool:
        """Whether the URL says https."""
        return self.url.startswith("https://")


class ModelConfig(Section):
    """A public model."""

    name: Annotated[ModelName, Field(description="what clients send as `model`")]
    aliases: Annotated[list[ModelName], Field(description="other names that clients may send for it")] = []
    facts: Annotated[
        str | None, Field(description="name in the table of model facts, for cost and capacity")
    ] = None
    output_prior: Annotated[
        float | None, Field(gt=0, description="median output tokens before any is seen")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class KeyConfig(Section):
    """An API key of a client: given by its SHA-256, or by a file that holds the key."""

    id: Annotated[Id, Field(description="name in logs and metrics")]
    sha256: Annotated[
        str | None, Field(pattern=r"^[0-9a-f]{64}$", description="of the key, as `tokenweir key` prints it")
    ] = None
    key_file: Annotated[str | None, Field(description="file that holds the key, in place of `sha256`")] = None
    models: Annotated[list[ModelName] | None, Field(description="allowed models; null: all")] = None
    max_priority: Annotated[Priority, Field(description="highest `X-Priority` that it may ask for")] = (
        Priority.HIGH
    )
    requests_per_minute: Annotated[int | None, Field(ge=1, description="null: no limit")] = None
    tokens_per_minute: Annotated[
        int | None, Field(ge=1, description="prompt and output together; null: no limit")
    ] = None
    deadline: Annotated[
        Duration | None, Field(description="longest whole request; null: `limits.deadline`")
    ] = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.sha256 is None) == (self.key_file is None):
            raise ValueError("give either `sha256` or `key_file`")
        return self


class QueueConfig(Section):
    """The wait when no backend can take a request."""

    max_waiting: Annotated[
        int, Field(ge=0, le=1_000_000, description="requests that may wait for a model; more get a 429")
    ] = 1000
    max_wait: Annotated[Duration, Field(description="longest wait before a 429")] = 30_000
    max_bytes: Annotated[
        ByteSize, Field(description="of all requests that wait in one gateway; more get a 429")
    ] = 256 * 1024**2


class LimitConfig(Section):
    """Limits of requests."""

    body_max: Annotated[ByteSize, Field(description="largest request body")] = 64 * 1024**2
    body_memory: Annotated[ByteSize, Field(description="bodies up to this stay in memory")] = 4 * 1024**2
    deadline: Annotated[Duration | None, Field(description="longest whole request; null: none")] = None
    idle: Annotated[Duration, Field(ge=1000, description="longest gap between two bytes of an answer")] = (
        600_000
    )
    tries: Annotated[int, Field(ge=1, le=10, description="backends that one request may be offered to")] = 3
    connections: Annotated[int, Field(ge=64, le=1_000_000, description="per nginx worker")] = 16_384
    quarantine: Annotated[
        Duration, Field(description="how long a prompt that met two crashes is refused")
    ] = 600_000
    drain: Annotated[Duration, Field(description="how long streams may finish after a reload")] = 600_000


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
    telemetry: TelemetryConfig = TelemetryConfig()
    actuators: ActuationConfig = ActuationConfig()
    log: LogConfig = LogConfig()
    gateway_id: Annotated[Id | None, Field(description="null: made once and kept in the state folder")] = None
    state_dir: Annotated[str, Field(description="run-time files; relative to the configuration file")] = "var"

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
        for what, seen in (
            ("backend id", [backend.id for backend in self.backends]),
            ("backend url", [backend.url for backend in self.backends]),
            ("key id", [key.id for key in self.keys]),
            ("model name or alias", [n for model in self.models for n in {model.name, *model.aliases}]),
        ):
            twice = sorted({value for value in seen if seen.count(value) > 1})
            if twice:
                problems.append(f"{what} used twice: {', '.join(twice)}")
        if self.limits.body_memory > self.limits.body_max:
            problems.append("limits.body_memory is larger than limits.body_max")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def served_policy(self) -> Policy:
        """The policy that decides."""
        return self.serve_by if self.policy.startswith("shadow:") else Policy(self.policy)

    @property
    def shadow_policy(self) -> Policy | None:
        """The policy that is only logged, if any."""
        return Policy(self.policy.removeprefix("shadow:")) if self.policy.startswith("shadow:") else None


def hash_key(key: str) -> str:
    """SHA-256 of an API key, in hex: what is kept of it."""
    return hashlib.sha256(key.strip().encode()).hexdigest()
