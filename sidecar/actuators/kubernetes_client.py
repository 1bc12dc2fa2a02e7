"""The few calls of the Kubernetes API that are needed, and its errors in words."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from sidecar.actuators.actuator import ActuationError
from tokenweir.config.actuators import KubernetesConfig

TIMEOUT_S: Final = (5, 30)
"""To connect, and for an answer."""


class Cluster:
    """Connects once, when it is first needed; blocks."""

    def __init__(self, config: KubernetesConfig, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._api: Api | None = None

    def connect(self) -> Api:
        """The API as the configuration says. Raises ActuationError."""
        if self._api is None:
            self._api = Api(self._config, _client(self._config, self._folder))
        return self._api


def _client(config: KubernetesConfig, folder: Path) -> Any:
    try:
        kubernetes = import_module("kubernetes")
    except ImportError:
        raise ActuationError(
            "the package kubernetes is not installed: pip install -r requirements-extras.lock"
        ) from None
    client, loading = kubernetes.client, kubernetes.config
    try:
        if config.kubeconfig or config.context:
            file = str(folder / config.kubeconfig) if config.kubeconfig else None
            return loading.new_client_from_config(config_file=file, context=config.context)
        settings = client.Configuration()
        try:
            loading.load_incluster_config(client_configuration=settings)
        except loading.ConfigException:
            loading.load_kube_config(client_configuration=settings)
        return client.ApiClient(settings)
    except (loading.ConfigException, OSError) as error:
        raise ActuationError(f"no way to the Kubernetes API: {error}") from None


class Api:
    """Calls on the pods or the workload of one configuration. They raise what is in `errors`."""

    def __init__(self, config: KubernetesConfig, api_client: Any) -> None:
        client = import_module("kubernetes").client
        transport = import_module("urllib3").exceptions
        self.errors: tuple[type[Exception], ...] = (client.ApiException, transport.HTTPError)
        self._config = config
        self._core = client.CoreV1Api(api_client)
        self._apps = client.AppsV1Api(api_client)
        self._kind, _, self._name = (config.workload or "").partition("/")
        if self._kind == "deployment":
            self._kind_in_calls = "deployment"
        else:
            self._kind_in_calls = "stateful_set"

    def pods(self) -> list[Any]:
        """The pods, by name, selector or the workload's own selector."""
        if self._config.pod:
            return [self._core.read_namespaced_pod(self._config.pod, self._config.namespace, **_limit())]
        selector = self._config.selector or self._selector()
        found = self._core.list_namespaced_pod(self._config.namespace, label_selector=selector, **_limit())
        return list(found.items)

    def delete_pod(self, name: str) -> None:
        """Delete a pod, with the time to end that it has asked for."""
        self._core.delete_namespaced_pod(name, self._config.namespace, **_limit())

    def patch(self, body: dict[str, Any]) -> None:
        """Merge a change into the workload."""
        self._call("patch", body)

    def replicas(self) -> int:
        """How many pods the workload is to have."""
        return int(self._call("read", suffix="_scale").spec.replicas or 0)

    def scale(self, replicas: int) -> None:
        """Have so many pods."""
        self._call("patch", {"spec": {"replicas": replicas}}, suffix="_scale")

    def container_name(self) -> str:
        """The engine's container: as configured, else the first."""
        if self._config.container:
            return self._config.container
        return str(self._call("read").spec.template.spec.containers[0].name)

    def _selector(self) -> str:
        labels = self._call("read").spec.selector.match_labels or {}
        return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))

    def _call(self, verb: str, *body: Any, suffix: str = "") -> Any:
        method = getattr(self._apps, f"{verb}_namespaced_{self._kind_in_calls}{suffix}")
        return method(self._name, self._config.namespace, *body, **_limit())


def _limit() -> dict[str, Any]:
    return {"_request_timeout": TIMEOUT_S}


def explain(error: Exception) -> str:
    """An error of the API in words for an operator."""
    status = getattr(error, "status", None)
    if status is None:
        return f"the Kubernetes API does not answer: {error}"
    try:
        message = json.loads(getattr(error, "body", "") or "").get("message", "")
    except (ValueError, AttributeError):
        message = ""
    return f"the Kubernetes API answers {status}: {message or getattr(error, 'reason', '')}"
