"""Whether a backend's address is the gateway's own: its requests would go round for ever."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from tokenweir.config.servers import Listen

ADVICE = "it is the gateway's own address (`listen`); give the server, or the gateway, another port"


def _plain(host: str) -> str:
    return host.strip("[]").lower()


def _is_this_machine(host: str) -> bool:
    """Whether it is loopback, or every address of the machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host in {"*", "localhost"} or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def is_own(url: str, listen: Listen) -> bool:
    """Whether `url` (valid, as a backend's) leads to where the gateway listens, by what is written: names are
    not resolved, so that another name of this machine is not known for it."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host, listens = _plain(parts.hostname or ""), _plain(listen.address)
    if port != listen.port:
        return False
    return host == listens or (_is_this_machine(host) and _is_this_machine(listens))
