"""Acts on pods by the Kubernetes API, through the package `kubernetes` (an extra:
`pip install -r requirements-extras.lock`).

The sidecar's account needs `get`, `list` and `delete` on pods, and `get` and `patch` on its deployments or
statefulsets and their scale (`deploy/kubernetes/rbac.yaml`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sidecar.actuators import threads
from sidecar.actuators.actuator import Action, ActuationError, Order
from sidecar.actuators.kubernetes_client import Cluster, explain
from tokenweir.config.actuators import KubernetesConfig

RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
"""The annotation by which `kubectl rollout restart` rolls a workload."""


class KubernetesDriver:
    """One pod, the pods of a selector, or a workload."""

    kind = "kubernetes"

    def __init__(self, config: KubernetesConfig, folder: Path) -> None:
        self._config = config
        self._cluster = Cluster(config, folder)

    async def act(self, order: Order) -> str:
        """As in `Driver`."""
        return await threads.run(lambda: self._act(order))

    def describe(self, order: Order) -> str:
        """As in `Driver`."""
        what = self._config.workload or self._config.pod or f"the pods {self._config.selector}"
        verb = {
            Action.RESTART: "roll" if self._config.workload else "delete",
            Action.START: f"scale to {self._config.replicas}",
            Action.STOP: "scale to 0",
            Action.APPLY: f"set the arguments {' '.join(order.arguments)} of",
        }[order.action]
        return f"{verb} {what} in namespace {self._config.namespace}"

    def _act(self, order: Order) -> str:
        api = self._cluster.connect()
        try:
            if self._config.workload is None:
                return self._act_on_pods(api, order)
            return self._act_on_workload(api, order)
        except api.errors as error:
            raise ActuationError(explain(error)) from None

    def _act_on_pods(self, api: Any, order: Order) -> str:
        if order.action is not Action.RESTART:
            wanted = "name its `workload`: deployment/NAME or statefulset/NAME"
            raise ActuationError(f"a pod cannot be told to {order.action}; {wanted}")
        pods = api.pods()
        if not pods:
            raise ActuationError(f"no pod {self._config.selector} in namespace {self._config.namespace}")
        orphans = [pod.metadata.name for pod in pods if not pod.metadata.owner_references]
        if orphans:
            raise ActuationError(f"pod {orphans[0]} has no owner that would make it anew: it is not deleted")
        names = [pod.metadata.name for pod in pods]
        for name in names:
            api.delete_pod(name)
        return f"deleted {', '.join(names)}; the owner makes it anew"

    def _act_on_workload(self, api: Any, order: Order) -> str:
        workload = self._config.workload
        if order.action is Action.RESTART:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            api.patch({"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: now}}}}})
            return f"rolled {workload}"
        if order.action is Action.APPLY:
            name = api.container_name()
            container = {"name": name, "args": list(order.arguments)}
            api.patch({"spec": {"template": {"spec": {"containers": [container]}}}})
            return f"set the arguments of {name} of {workload}, which rolls it"
        replicas = self._config.replicas if order.action is Action.START else 0
        before = api.replicas()
        if before == replicas or (order.action is Action.START and before > replicas):
            return f"{workload} has {before} replicas already"
        api.scale(replicas)
        return f"scaled {workload} from {before} to {replicas}"
