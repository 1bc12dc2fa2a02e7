"""How each backend is reached for telemetry: by its resolved address, with its own Host, TLS and API key."""

from __future__ import annotations

import ssl
from pathlib import Path

from sidecar.control import credentials
from sidecar.telemetry.http import Origin, tls_context
from tokenweir.config import ConfigError
from tokenweir.config.models import BackendConfig


class Origins:
    """Origins by backend, made once per address and key; TLS contexts are shared."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, tuple[str, str | None, BackendConfig, Origin]] = {}
        self._contexts: dict[tuple[bool, str | None], ssl.SSLContext] = {}

    def of(self, config: BackendConfig, address: str, api_key: str | None) -> Origin:
        """The origin of a backend at `address`. Raises ConfigError on a TLS setting that cannot be used."""
        made = self._made.get(config.id)
        if made is not None and made[:3] == (address, api_key, config):
            return made[3]
        host = f"[{address}]" if ":" in address else address
        origin = Origin(
            base=f"{'https' if config.secure else 'http'}://{host}:{config.port}",
            host_header=credentials.host_header(config),
            server_name=credentials.server_name(config) or None,
            tls=self.context(config),
            api_key=api_key,
        )
        self._made[config.id] = (address, api_key, config, origin)
        return origin

    def keep(self, backend_ids: set[str]) -> None:
        """Forget all other backends."""
        self._made = {key: made for key, made in self._made.items() if key in backend_ids}

    def forget(self) -> None:
        """The files were read anew: make everything again."""
        self._made.clear()
        self._contexts.clear()

    def context(self, config: BackendConfig) -> ssl.SSLContext | None:
        """The TLS context of a backend, or None for plain HTTP. Raises ConfigError."""
        if not config.secure:
            return None
        ca = None if config.tls.ca is None else str(self._folder / config.tls.ca)
        wanted = (config.tls.verify, ca)
        if wanted not in self._contexts:
            try:
                self._contexts[wanted] = tls_context(config.tls.verify, ca)
            except OSError as error:
                raise ConfigError(
                    config.tls.ca or "tls", [f"`backends: {config.id}: tls.ca`: {error}"]
                ) from None
        return self._contexts[wanted]
