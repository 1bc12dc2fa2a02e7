"""Acts on a container by its Docker engine, local or remote."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import NotFound

from sidecar.actuators import threads
from sidecar.actuators.actuator import Action, ActuationError, Order
from sidecar.actuators.docker_client import ERRORS, connect, explain, host_of
from sidecar.actuators.recreate import bring_back_cut_off, recreate
from tokenweir.config.actuators import DockerConfig

MARGIN_S: Final = 30
"""What a call may take beyond the container's own grace."""


class DockerDriver:
    """One container."""

    kind = "docker"

    def __init__(self, config: DockerConfig, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._host = host_of(config)

    async def act(self, order: Order) -> str:
        """As in `Driver`."""
        return await threads.run(lambda: self._act(order))

    def describe(self, order: Order) -> str:
        """As in `Driver`."""
        with_arguments = f" with {' '.join(order.arguments)}" if order.arguments else ""
        verb = "recreate" if order.action is Action.APPLY else order.action.value
        return f"{verb} container {self._config.container} of Docker at {self._host}{with_arguments}"

    def _act(self, order: Order) -> str:
        grace = round(self._config.grace / 1000)
        client = connect(self._config, self._folder, grace + MARGIN_S)
        try:
            try:
                return self._with(client, order, grace)
            except NotFound:
                if not bring_back_cut_off(client, self._config.container):
                    raise ActuationError(self._missing(client)) from None
            text = self._with(client, order, grace)
            return f"{text}; a change of it had been cut off, the one before was brought back"
        except ERRORS as error:
            raise ActuationError(explain(error, self._host)) from None
        finally:
            client.close()

    def _with(self, client: docker.DockerClient, order: Order, grace: int) -> str:
        name = self._config.container
        container = client.containers.get(name)
        before = _state(container.attrs)
        if container.status == "paused" and order.action is not Action.START:
            container.unpause()
        if order.action is Action.RESTART:
            container.restart(timeout=grace)
            return f"container {name} restarted ({before})"
        if order.action is Action.START:
            if container.status == "paused":
                container.unpause()
                return f"container {name} resumed"
            if container.status == "running":
                return f"container {name} runs already"
            container.start()
            return f"container {name} started ({before})"
        if order.action is Action.STOP:
            if container.status in {"exited", "created", "dead"}:
                return f"container {name} is stopped already"
            container.stop(timeout=grace)
            return f"container {name} stopped"
        return recreate(client, container.attrs, list(order.arguments), grace)

    def _missing(self, client: docker.DockerClient) -> str:
        names: list[str] = []
        with contextlib.suppress(*ERRORS):
            names = sorted(found.name for found in client.containers.list(all=True) if found.name)
        there = ", ".join(names[:20]) or "none"
        return f"Docker at {self._host} has no container {self._config.container!r}; it has: {there}"


def _state(attributes: dict[str, Any]) -> str:
    """How a container was found, in words."""
    state = attributes.get("State", {})
    status = state.get("Status", "unknown")
    if status not in {"exited", "dead"}:
        return f"it was {status}"
    if state.get("OOMKilled"):
        return f"it had ended out of memory, status {state.get('ExitCode')}"
    return f"it had ended with status {state.get('ExitCode')}"
