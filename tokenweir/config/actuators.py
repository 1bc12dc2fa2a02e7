"""How a backend's engine is restarted, started and stopped: a member `actuator` of the backend."""

from __future__ import annotations

from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from tokenweir.config.file_name import FileName
from tokenweir.config.quantities import Duration
from tokenweir.config.section import Section

Argv = Annotated[list[Annotated[str, Field(max_length=4096)]], Field(min_length=1, max_length=256)]
Name = Annotated[str, Field(min_length=1, max_length=253)]
WORKLOADS = ("deployment", "statefulset")


class DockerConfig(Section):
    """A container of a Docker engine."""

    container: Annotated[Name, Field(description="name or id of the engine's container")]
    host: Annotated[
        str | None,
        Field(
            description="unix:///var/run/docker.sock or tcp://host:2376; null: DOCKER_HOST, else the socket"
        ),
    ] = None
    ca: Annotated[FileName | None, Field(description="PEM file that verifies a tcp:// engine")] = None
    certificate: Annotated[FileName | None, Field(description="PEM file that the engine knows us by")] = None
    key: Annotated[FileName | None, Field(description="PEM file with its private key")] = None
    grace: Annotated[Duration, Field(ge=0, le=600_000, description="between SIGTERM and SIGKILL")] = 10_000

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"container": value} if isinstance(value, str) else value

    @field_validator("host")
    @classmethod
    def _known_scheme(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"unix", "tcp"} or not (
            parts.path if parts.scheme == "unix" else parts.hostname
        ):
            raise ValueError("unix:///path/to/docker.sock or tcp://host:port is wanted")
        return value

    @model_validator(mode="after")
    def _whole_identity(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("`certificate` and `key` belong together")
        if (self.ca or self.certificate) and not (self.host or "").startswith("tcp://"):
            raise ValueError("`ca`, `certificate` and `key` are for a `host` that begins with tcp://")
        return self


class KubernetesConfig(Section):
    """A pod, or the workload that makes it."""

    namespace: Annotated[Name, Field(description="namespace of the pod")] = "default"
    pod: Annotated[
        Name | None, Field(description="a pod by name: restarted by deleting it, its owner makes another")
    ] = None
    selector: Annotated[
        Name | None, Field(description="its pods by label (app=vllm-a): restarted by deleting them")
    ] = None
    workload: Annotated[
        Name | None,
        Field(description="deployment/NAME or statefulset/NAME: rolled, scaled to start and stop, changed"),
    ] = None
    container: Annotated[
        Name | None, Field(description="the engine's container in the pod; null: the only one, or the first")
    ] = None
    replicas: Annotated[int, Field(ge=1, le=1000, description="pods of the workload while started")] = 1
    kubeconfig: Annotated[
        FileName | None, Field(description="file; null: the pod's service account, else ~/.kube/config")
    ] = None
    context: Annotated[str | None, Field(description="context of the kubeconfig; null: its current one")] = (
        None
    )

    @field_validator("workload")
    @classmethod
    def _known_workload(cls, value: str | None) -> str | None:
        if value is None:
            return None
        kind, _, name = value.partition("/")
        if kind not in WORKLOADS or not name:
            raise ValueError("deployment/NAME or statefulset/NAME is wanted")
        return value

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        given = [name for name in ("pod", "selector", "workload") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of `pod`, `selector` and `workload` ({_given(given)})")
        return self


class CommandConfig(Section):
    """Programs of this host, each as a list of words; no shell reads them. `{arguments}` as a word stands for
    the engine's new arguments."""

    restart: Annotated[Argv | None, Field(description="[systemctl, restart, vllm-a]")] = None
    start: Annotated[Argv | None, Field(description="[systemctl, start, vllm-a]")] = None
    stop: Annotated[Argv | None, Field(description="[systemctl, stop, vllm-a]")] = None
    apply: Annotated[Argv | None, Field(description='[/usr/local/bin/vllm-args, vllm-a, "{arguments}"]')] = (
        None
    )
    folder: Annotated[
        FileName | None, Field(description="where they run; null: the configuration's folder")
    ] = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.restart is None and (self.start is None or self.stop is None):
            raise ValueError("give `restart`, or both `stop` and `start`")
        if self.apply is not None and "{arguments}" not in self.apply:
            raise ValueError("`apply` needs the word {arguments}, in whose place the new arguments are put")
        return self


class WebhookConfig(Section):
    """A URL that is told what to do, signed as Standard Webhooks says."""

    url: Annotated[str, Field(description="https://ops.example/tokenweir")]
    secret_file: Annotated[FileName, Field(description="file with the shared secret; at least 24 characters")]
    ca: Annotated[
        FileName | None, Field(description="PEM file that verifies the server; null: the system's")
    ] = None

    @field_validator("url")
    @classmethod
    def _http(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("a URL that begins with http:// or https:// is wanted")
        if parts.username or parts.password:
            raise ValueError("no user or password belongs in the URL; the request is signed")
        return value


class ActuatorConfig(Section):
    """Exactly one of docker, kubernetes, command and webhook."""

    docker: DockerConfig | None = None
    kubernetes: KubernetesConfig | None = None
    command: CommandConfig | None = None
    webhook: WebhookConfig | None = None
    timeout: Annotated[
        Duration,
        Field(ge=1000, le=3_600_000, description="for one action, the engine's loading not included"),
    ] = 120_000
    dry_run: Annotated[bool, Field(description="write what would be done into the audit log, do nothing")] = (
        False
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of {', '.join(KINDS)} ({_given(given)})")
        return self

    @property
    def kind(self) -> str:
        """docker, kubernetes, command or webhook."""
        return next(name for name in KINDS if getattr(self, name) is not None)


KINDS = ("docker", "kubernetes", "command", "webhook")


class WeightsConfig(Section):
    """The engine's weights, read into the page cache before or while it starts."""

    path: Annotated[
        str, Field(min_length=1, max_length=4096, description="folder or file, on the host where it is read")
    ]
    agent: Annotated[
        str | None,
        Field(description="the agent on the backend's host, http://gpu-a:9401; null: this host reads"),
    ] = None
    token_file: Annotated[FileName | None, Field(description="file with the agent's token")] = None
    readers: Annotated[int, Field(ge=1, le=64, description="parts that are read at once")] = 8

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    @field_validator("agent")
    @classmethod
    def _http(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path not in {"", "/"}:
            raise ValueError("a URL like http://gpu-a:9401 is wanted")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _token_for_agent(self) -> Self:
        if self.token_file and not self.agent:
            raise ValueError("`token_file` is the agent's: give `agent`")
        return self


class ActuationConfig(Section):
    """For all actuators."""

    dry_run: Annotated[
        bool, Field(description="no backend is acted on: what would be done goes into the audit log")
    ] = False
    history: Annotated[
        int, Field(ge=10, le=100_000, description="actions that the admin API shows, newest first")
    ] = 1000


def _given(names: list[str]) -> str:
    return f"given: {', '.join(names)}" if names else "none is given"
