"""The inference servers: `backends`."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from tokenweir.config.actuators import ActuatorConfig, WeightsConfig
from tokenweir.config.file_name import FileName
from tokenweir.config.section import Section
from tokenweir.config.transfer import BackendTransferConfig
from tokenweir.contract.records import Id, ModelName, Role
from tokenweir.contract.values import PLAIN

Engine = Literal["auto", "vllm", "sglang", "tgi", "llamacpp", "trtllm", "ollama"]


class BackendTls(Section):
    """TLS towards a backend."""

    verify: Annotated[bool, Field(description="check the server's certificate")] = True
    ca: Annotated[FileName | None, Field(description="PEM file; null: the system's")] = None
    server_name: Annotated[
        str | None, Field(pattern=PLAIN, description="expected name; null: the URL's host")
    ] = None


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
        if not all(isinstance(name, str) for name in value):
            raise ValueError("a list of names, or a map of public name: the engine's name, is wanted")
        return {name: name for name in value}
    return value


def _cards(value: Any) -> Any:
    if isinstance(value, int | str) and not isinstance(value, bool):
        value = [value]
    if isinstance(value, list):
        return [str(card) if isinstance(card, int) and not isinstance(card, bool) else card for card in value]
    return value


LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?"
HOST: Final = re.compile(rf"{LABEL}(?:\.{LABEL})*\.?")


def _check_host(host: str) -> None:
    """Raises ValueError for what is neither a host's name nor an address."""
    if ":" in host:
        ipaddress.IPv6Address(host.partition("%")[0])
    elif not HOST.fullmatch(host):
        raise ValueError(f"{host!r} is no name of a host, nor an address")


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
    precision: Annotated[
        str, Field(max_length=16, pattern=PLAIN, description="of the weights: fp16, fp8, int4, ...")
    ] = ""
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
        FileName | None,
        Field(max_length=1024, description="file with the key that this server wants"),
    ] = None
    host_header: Annotated[
        str | None, Field(max_length=260, pattern=PLAIN, description="Host for the server; null: the URL's")
    ] = None
    tls: BackendTls = BackendTls()
    group: Annotated[
        Id | None,
        Field(
            description="of a group one that serves is restarted at a time; null: those of the same models"
        ),
    ] = None
    actuator: Annotated[
        ActuatorConfig | None,
        Field(description="how the engine is restarted; null: by nobody. Not settable by the admin API"),
    ] = None
    weights: Annotated[
        WeightsConfig | None,
        Field(description="weights to be read ahead of a start. Not settable by the admin API"),
    ] = None
    transfer: Annotated[
        BackendTransferConfig | None,
        Field(description="its part in moving caches (`sessions.transfer`). Not settable by the admin API"),
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
        _check_host(parts.hostname)
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
        _check_host(parts.hostname)
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
        """Keys that name programs, sockets and files of the sidecar's host, and agents that it shows a token:
        only `tokenweir.yaml` sets them, neither the admin API nor what comes through Redis."""
        return {"actuator", "weights", "transfer"}

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
