"""How many files this process may have open: a connection to each backend, exporter and client of the API."""

from __future__ import annotations

import resource
from typing import Final

MOST: Final = 65_536
"""More than a fleet of the largest size needs."""


def raise_limit(most: int = MOST) -> int:
    """Raise this process's own (soft) limit as far as the system lets it, up to `most`: the usual 1,024 are
    fewer than a large fleet has connections. Returns what holds then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return soft
