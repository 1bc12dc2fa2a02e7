"""The part of the Kubernetes API that the sidecar uses, over real HTTP, with its documented objects.

https://kubernetes.io/docs/reference/kubernetes-api/
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

TOKEN = "a-service-account-token"


def terminated(reason: str, code: int, finished: str) -> dict[str, Any]:
    return {
        "terminated": {
            "reason": reason,
            "exitCode": code,
            "startedAt": "2026-01-01T00:00:00Z",
            "finishedAt": finished,
        }
    }


def pod(
    name: str,
    state: dict[str, Any],
    *,
    last: dict[str, Any] | None = None,
    restarts: int = 0,
    labels: dict[str, str] | None = None,
    owned: bool = True,
    container: str = "vllm",
) -> dict[str, Any]:
    """A pod with one container beside a side-car."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "vllm-a-7f", "uid": "u1"}
    status = {
        "name": container,
        "image": "vllm/vllm-openai",
        "imageID": "sha256:1",
        "ready": "running" in state,
        "restartCount": restarts,
        "state": state,
        "lastState": last or {},
    }
    beside = {
        "name": "proxy",
        "image": "proxy",
        "imageID": "sha256:2",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        "lastState": {},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "llm",
            "labels": labels or {"app": "vllm-a"},
            **({"ownerReferences": [owner]} if owned else {}),
        },
        "spec": {"containers": [{"name": container}, {"name": "proxy"}]},
        "status": {"phase": "Running", "containerStatuses": [status, beside]},
    }


class KubernetesServer:
    """Pods and one deployment. `calls` holds what was asked: (verb, path, body)."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.replicas = 1
        self.calls: list[tuple[str, str, Any]] = []
        self.content_types: list[str] = []
        self.forbidden = False
        self.port = 0

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._authorized])
        pods, apps = "/api/v1/namespaces/llm/pods", "/apis/apps/v1/namespaces/llm"
        app.router.add_get(pods, self._list)
        app.router.add_get(pods + "/{name}", self._read)
        app.router.add_delete(pods + "/{name}", self._delete)
        for kind in ("deployments", "statefulsets"):
            app.router.add_get(f"{apps}/{kind}/vllm-a", self._workload)
            app.router.add_patch(f"{apps}/{kind}/vllm-a", self._patch)
            app.router.add_get(f"{apps}/{kind}/vllm-a/scale", self._scale)
            app.router.add_patch(f"{apps}/{kind}/vllm-a/scale", self._patch_scale)
        return app

    def kubeconfig(self, folder: Path) -> str:
        """Write a kubeconfig that leads here; its name."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "sidecar"}}],
            "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "sidecar", "user": {"token": TOKEN}}],
        }
        (folder / "kubeconfig").write_text(yaml.safe_dump(document))
        return "kubeconfig"

    @web.middleware
    async def _authorized(self, request: web.Request, handler: Any) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        self.calls.append((request.method, request.path, body))
        self.content_types.append(request.content_type)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._status(401, "Unauthorized")
        if self.forbidden:
            text = 'pods is forbidden: User "system:serviceaccount:llm:sidecar" cannot list resource "pods"'
            return self._status(403, text)
        answer: web.StreamResponse = await handler(request)
        return answer

    def _status(self, code: int, message: str) -> web.Response:
        document = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": message,
            "code": code,
        }
        return web.json_response(document, status=code)

    async def _list(self, request: web.Request) -> web.Response:
        wanted = dict(
            part.split("=", 1) for part in request.query.get("labelSelector", "").split(",") if part
        )
        items = [
            one
            for one in self.pods.values()
            if all(one["metadata"]["labels"].get(name) == value for name, value in wanted.items())
        ]
        return web.json_response({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items})

    async def _read(self, request: web.Request) -> web.Response:
        found = self.pods.get(request.match_info["name"])
        if found is None:
            return self._status(404, f'pods "{request.match_info["name"]}" not found')
        return web.json_response(found)

    async def _delete(self, request: web.Request) -> web.Response:
        return web.json_response(self.pods.pop(request.match_info["name"]))

    async def _workload(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "vllm-a", "namespace": "llm"},
                "spec": {
                    "replicas": self.replicas,
                    "selector": {"matchLabels": {"app": "vllm-a"}},
                    "serviceName": "vllm-a",
                    "template": {
                        "metadata": {"labels": {"app": "vllm-a"}},
                        "spec": {"containers": [{"name": "vllm"}, {"name": "proxy"}]},
                    },
                },
            }
        )

    async def _patch(self, request: web.Request) -> web.Response:
        return await self._workload(request)

    async def _scale(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": "vllm-a", "namespace": "llm"},
                "spec": {"replicas": self.replicas},
                "status": {"replicas": self.replicas},
            }
        )

    async def _patch_scale(self, request: web.Request) -> web.Response:
        self.replicas = (await request.json())["spec"]["replicas"]
        return await self._scale(request)
