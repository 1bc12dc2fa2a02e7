"""The actuators of the fleet, made of the configuration."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from pathlib import Path

import structlog

from sidecar.actuators.actuator import Actuator, Driver
from sidecar.actuators.audit import Audit
from sidecar.actuators.command import CommandDriver
from sidecar.actuators.docker_engine import DockerDriver
from sidecar.actuators.guard import GuardedActuator
from sidecar.actuators.kubernetes_api import KubernetesDriver
from sidecar.actuators.prefetches import Prefetches
from sidecar.actuators.webhook import WebhookDriver, secret_of
from tokenweir.config import ConfigError
from tokenweir.config.actuators import ActuationConfig, ActuatorConfig, WebhookConfig
from tokenweir.config.models import BackendConfig
from tokenweir.secret_file import read_secret

log = structlog.get_logger(__name__)

LATE_S = 10.0
"""Beyond the time limit of an action: what a program gets to end, before it is called late."""


class Actuators:
    """By backend. An actuator whose configuration has not changed goes on, with what it is doing."""

    def __init__(self, folder: Path, state_dir: Path, config: ActuationConfig) -> None:
        self.audit = Audit(state_dir, config.history)
        self.prefetches = Prefetches(folder)
        self.problems: dict[str, str] = {}
        """Backend -> why it has no actuator although it is to have one."""
        self._folder = folder
        self._known: dict[str, tuple[ActuatorConfig, GuardedActuator]] = {}
        self._former: dict[str, GuardedActuator] = {}
        """Those that were let go while they were at something."""

    def of(self, backend_id: str) -> Actuator | None:
        """The actuator of a backend, or None where `tokenweir.yaml` names none."""
        found = self._known.get(backend_id)
        return None if found is None else found[1]

    def kinds(self) -> dict[str, tuple[str, bool]]:
        """Backend -> (kind of its actuator, whether nothing is really done)."""
        return {name: (actuator.kind, actuator.dry_run) for name, (_, actuator) in self._known.items()}

    def set_backends(self, backends: Iterable[BackendConfig], config: ActuationConfig) -> None:
        """Have exactly the actuators of these backends. One whose files cannot be used is a problem of its
        backend alone (`problems`), and is tried again the next time."""
        present = list(backends)
        self.prefetches.set_backends(present)
        wanted = {backend.id: backend.actuator for backend in present if backend.actuator is not None}
        for gone in set(self._known) - set(wanted):
            self._let_go(gone)
        self.audit.keep(config.history)
        self.problems.clear()
        for backend_id, own in wanted.items():
            known = self._known.get(backend_id)
            if known is not None and known[0] == own:
                known[1].dry_run = own.dry_run or config.dry_run
                continue
            self._let_go(backend_id)
            try:
                driver = self._driver(backend_id, own)
            except ConfigError as error:
                self.problems[backend_id] = "; ".join(error.problems)
                log.error("actuator_unusable", backend=backend_id, problem=self.problems[backend_id])
                continue
            late_ms = own.timeout + round(LATE_S * 1000)
            actuator = GuardedActuator(
                backend_id,
                driver,
                self.audit,
                timeout_ms=late_ms,
                dry_run=own.dry_run or config.dry_run,
                begins=self.prefetches.begin,
                former=self._former.get(backend_id),
            )
            self._known[backend_id] = (own, actuator)

    async def close(self) -> None:
        """Stop reading weights ahead. Actions under way end by themselves."""
        await self.prefetches.close()

    def _let_go(self, backend_id: str) -> None:
        self._former = {name: one for name, one in self._former.items() if one.busy is not None}
        known = self._known.pop(backend_id, None)
        if known is not None and known[1].busy is not None:
            self._former[backend_id] = known[1]

    def _driver(self, backend_id: str, config: ActuatorConfig) -> Driver:
        if config.docker is not None:
            return DockerDriver(config.docker, self._folder)
        if config.kubernetes is not None:
            return KubernetesDriver(config.kubernetes, self._folder)
        if config.command is not None:
            return CommandDriver(config.command, self._folder, config.timeout / 1000)
        if config.webhook is None:
            raise ValueError("an actuator is one of docker, kubernetes, command and webhook")
        return self._webhook(backend_id, config.webhook)

    def _webhook(self, backend_id: str, config: WebhookConfig) -> Driver:
        key = f"backends: {backend_id}: actuator: webhook"
        try:
            secret = secret_of(read_secret(self._folder / config.secret_file, f"{key}: secret_file"))
        except ValueError as error:
            path = str(self._folder / config.secret_file)
            raise ConfigError(path, [f"`{key}: secret_file`: {error}"]) from None
        tls = None
        if config.ca:
            path = str(self._folder / config.ca)
            try:
                tls = ssl.create_default_context(cafile=path)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(path, [f"`{key}: ca`: {error}"]) from None
        return WebhookDriver(config, secret, tls)
