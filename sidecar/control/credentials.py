"""Which backends accept the same request as it stands: a retry goes only from one of them to another.

The gateway sets the API key, the Host and the scheme before it picks; it cannot change them on a retry.
"""

from __future__ import annotations

from collections.abc import Mapping

from tokenweir.config.models import BackendConfig


def host_header(config: BackendConfig) -> str:
    """The Host that the engine is sent: as configured, else the URL's."""
    return config.host_header or config.url.split("://", 1)[1]


def server_name(config: BackendConfig) -> str:
    """The name in the TLS handshake; empty without TLS."""
    return (config.tls.server_name or config.host) if config.secure else ""


def groups(configs: Mapping[str, BackendConfig]) -> dict[str, str]:
    """Backend id -> group. Plain HTTP backends without key and without a Host of their own share the group
    "" (engines do not look at the Host); others share one when all of it is equal, named after its first
    member. Keys are equal when the same file holds them."""
    first: dict[tuple[str, str, str, bool], str] = {}
    result: dict[str, str] = {}
    for backend_id in sorted(configs):
        config = configs[backend_id]
        key = config.api_key_file or ""
        if not key and not config.secure and config.host_header is None:
            result[backend_id] = ""
            continue
        host = host_header(config) if config.secure or config.host_header else ""
        trait = (key, host, server_name(config), config.tls.verify)
        result[backend_id] = first.setdefault(trait, backend_id)
    return result
