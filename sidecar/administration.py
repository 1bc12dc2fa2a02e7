"""What an operator may change while it runs. Everything is checked before anything is kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import structlog
from pydantic import ValidationError

from sidecar.clock import monotonic_ms
from sidecar.control.drain import Drain
from sidecar.control_plane import ControlPlane
from tokenweir.config import Config, ConfigError, own_address
from tokenweir.config.errors import explain
from tokenweir.config.models import BackendConfig
from tokenweir.contract import names

log = structlog.get_logger(__name__)

SOURCE = "admin API"


class UnknownBackendError(LookupError):
    """There is no backend of that id; the text lists those that are."""

    def __init__(self, backend_id: str, known: Iterable[str]) -> None:
        super().__init__(f"no backend {backend_id!r}; the backends are: {', '.join(sorted(known)) or 'none'}")


class ConflictError(ValueError):
    """The change contradicts what is there."""


class Administration:
    """Changes to the fleet and the policy. Methods raise ConfigError on values that cannot be used, and
    OSError when a change cannot be kept on disk (it is not made then)."""

    def __init__(self, plane: ControlPlane, address: str = "") -> None:
        """`address` is whose changes these are, for the log."""
        self._plane = plane
        self._address = address

    def tell(self, change: str, **about: object) -> None:
        """Log a change that was accepted: what of what, from where; no values that could be secret."""
        log.info("admin_change", change=change, **about, address=self._address)

    def backend(self, backend_id: str) -> BackendConfig:
        """The configuration of a backend as it holds now. Raises UnknownBackendError."""
        for backend in self._plane.config.backends:
            if backend.id == backend_id:
                return backend
        raise UnknownBackendError(backend_id, (backend.id for backend in self._plane.config.backends))

    def add(self, backend: BackendConfig) -> None:
        """Add a backend. Raises ConflictError when its id or URL is taken, or the fleet is full."""
        present = self._plane.config.backends
        if any(other.id == backend.id for other in present):
            raise ConflictError(
                f"backend {backend.id!r} exists; change it with PATCH /api/backends/{backend.id}"
            )
        if len(present) >= names.MAX_BACKENDS:
            raise ConflictError(f"the fleet holds {names.MAX_BACKENDS} backends, more it cannot")
        self._set(backend)
        self.tell("add", backend=backend.id)

    def change(self, backend_id: str, members: dict[str, Any]) -> BackendConfig:
        """Change members of a backend's configuration; one that is null goes back to its default. Raises
        UnknownBackendError, ConflictError."""
        present = self.backend(backend_id).model_dump(mode="json", exclude_unset=True)
        merged = {key: value for key, value in {**present, **members}.items() if value is not None}
        merged.setdefault("id", backend_id)
        try:
            backend = BackendConfig.model_validate(merged)
        except ValidationError as error:
            raise explain(SOURCE, error, BackendConfig) from None
        if backend.id != backend_id:
            raise ConflictError("the id of a backend cannot be changed; add another one and remove this one")
        self._set(backend)
        self.tell("change", backend=backend_id, members=sorted(members))
        return backend

    def remove(self, backend_id: str, now: bool) -> None:
        """Remove a backend: it drains, and goes when it is empty; `now`: at once. Raises
        UnknownBackendError."""
        self.backend(backend_id)
        self._plane.store.remove_backend(backend_id)
        if now:
            self._plane.fleet.forget(backend_id)
        self._plane.changed()
        self.tell("remove", backend=backend_id, now=now)

    def drain(self, backend_id: str, draining: bool) -> Drain:
        """Begin or end a drain. Raises UnknownBackendError."""
        self.backend(backend_id)
        if (backend_id in self._plane.store.draining()) != draining:
            self._plane.store.set_draining(backend_id, draining)
            self._plane.changed()
            self.tell("drain" if draining else "undrain", backend=backend_id)
        return self._plane.fleet.drain_progress(backend_id)

    def restart(self, backend_id: str) -> None:
        """Have its engine restarted. Raises UnknownBackendError, ConflictError."""
        self._act_on(backend_id)
        if self._plane.fleet.members[backend_id].changing is not None:
            raise ConflictError(f"a change of {backend_id!r} is under way; its engine is restarted by that")
        recovery = self._plane.loop.recovery
        if not recovery.order_restart(backend_id, monotonic_ms()):
            raise ConflictError(
                f"a restart of {backend_id!r} is under way already ({recovery.restarts.reason(backend_id)}); "
                f"POST /api/backends/{backend_id}/return forgets it"
            )
        self._plane.publish_soon()
        self.tell("restart", backend=backend_id)

    def bring_back(self, backend_id: str) -> bool:
        """Forget why a backend was left out; returns whether it was. Raises UnknownBackendError,
        ConflictError."""
        self.backend(backend_id)
        self._lead()
        known = self._plane.loop.recovery.bring_back(backend_id)
        self._plane.publish_soon()
        self.tell("return", backend=backend_id, was_left_out=known)
        return known

    def change_variant(
        self, backend_id: str, arguments: Sequence[str], precision: str, deadline_ms: float
    ) -> None:
        """Have its engine restarted with other arguments, drained before and ramped after. Raises
        UnknownBackendError, ConflictError."""
        self._act_on(backend_id)
        if backend_id in self._plane.store.draining():
            raise ConflictError(f"{backend_id!r} is drained; end that first")

        def applied() -> str | None:
            try:
                if precision:
                    self.change(backend_id, {"precision": precision})
            except (UnknownBackendError, ConflictError, ConfigError, OSError) as error:
                return f"it was started with them, but its `precision` could not be kept: {error}"
            return None

        if self._plane.fleet.members[backend_id].changing is not None:
            raise ConflictError(f"a change of {backend_id!r} is under way already")
        if not self._plane.loop.recovery.set_aside(backend_id, monotonic_ms()):
            raise ConflictError(f"a restart of {backend_id!r} is under way; order the change once it is done")
        begun = self._plane.operations.change_variant(backend_id, arguments, deadline_ms, applied)
        if not begun:
            raise ConflictError(f"a change of {backend_id!r} is under way already")
        self.tell("variant", backend=backend_id, precision=precision)

    def _act_on(self, backend_id: str) -> None:
        self.backend(backend_id)
        self._lead()
        if not self._plane.can_act(backend_id):
            raise ConflictError(f"{backend_id!r} has no `actuator` in tokenweir.yaml that could do it")

    def _lead(self) -> None:
        leader = self._plane.leader
        if not leader.leading:
            raise ConflictError(f"this sidecar does not lead; ask {leader.holder or 'the one that does'}")

    def set_policy(self, policy: str, serve_by: str | None) -> None:
        """Serve by another policy from the next snapshot on."""
        given = {"policy": policy, "serve_by": serve_by or self._plane.config.serve_by.value}
        try:
            checked = Config.model_validate(given)
        except ValidationError as error:
            raise explain(SOURCE, error, Config) from None
        self._plane.store.set_policy(checked.policy, checked.serve_by.value)
        self._plane.changed()
        self.tell("policy", policy=checked.policy, serve_by=checked.serve_by.value)

    def _set(self, backend: BackendConfig) -> None:
        if own_address.is_own(backend.url, self._plane.config.listen):
            raise ConfigError(SOURCE, [f"`url`: {own_address.ADVICE}"])
        written = next((other for other in self._plane.config.backends if other.id == backend.id), None)
        for key in sorted(BackendConfig.file_only()):
            if getattr(backend, key) != (getattr(written, key) if written is not None else None):
                text = "names programs, sockets or files of the sidecar's host: only tokenweir.yaml sets it"
                raise ConflictError(f"`{key}` {text}")
        for other in self._plane.config.backends:
            if other.url == backend.url and other.id != backend.id:
                raise ConflictError(f"backend {other.id!r} has the url {backend.url} already")
        self._plane.check(backend)
        self._plane.store.set_backend(backend)
        self._plane.changed()


__all__ = ["Administration", "ConfigError", "ConflictError", "UnknownBackendError"]
