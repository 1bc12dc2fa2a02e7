"""What the command line asks of the admin API."""

from __future__ import annotations

from typing import Any

import httpx

from tokenweir.stack import sidecar_server
from tokenweir.stack.settings import Settings

TIMEOUT_S = 3


def ask(settings: Settings, *paths: str) -> list[Any]:
    """The JSON at each path, over one connection. Raises httpx.HTTPError where nobody answers, ValueError on
    another status than 200 and on what is no JSON."""
    found = []
    with httpx.Client(
        base_url=sidecar_server.admin_url(settings),
        headers=sidecar_server.admin_headers(settings),
        timeout=TIMEOUT_S,
        trust_env=False,
        verify=False,  # loopback, without TLS
    ) as client:
        for path in paths:
            answer = client.get(path)
            if answer.status_code != 200:
                raise ValueError(f"{path} answers {answer.status_code}: {answer.text[:200]}")
            found.append(answer.json())
    return found
