"""A connection to a Docker engine, and its errors in words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import docker
import requests
from docker.errors import APIError, DockerException
from docker.tls import TLSConfig

from sidecar.actuators.actuator import ActuationError
from tokenweir.config.actuators import DockerConfig

SOCKET: Final = "unix:///var/run/docker.sock"
ERRORS: Final = (DockerException, requests.RequestException, OSError)
"""What the client raises when an engine is away or refuses."""


def host_of(config: DockerConfig) -> str:
    """Where the engine is."""
    return config.host or os.environ.get("DOCKER_HOST") or SOCKET


def connect(config: DockerConfig, folder: Path, timeout_s: int) -> docker.DockerClient:
    """A client; blocks for a round trip, in which both sides agree on a version. Files are relative to
    `folder`. Raises ActuationError."""
    host = host_of(config)
    try:
        return docker.DockerClient(base_url=host, tls=_tls(config, folder, host), timeout=timeout_s)
    except ERRORS as error:
        raise ActuationError(explain(error, host)) from None


def _tls(config: DockerConfig, folder: Path, host: str) -> TLSConfig | bool:
    if not host.startswith("tcp://") or not (config.ca or config.certificate):
        return False
    pair = None
    if config.certificate and config.key:
        pair = (str(folder / config.certificate), str(folder / config.key))
    return TLSConfig(client_cert=pair, ca_cert=str(folder / config.ca) if config.ca else None, verify=True)


def explain(error: Exception, host: str) -> str:
    """An error in words for an operator."""
    if isinstance(error, APIError) and error.explanation:
        return f"Docker at {host}: {error.explanation}"
    text = str(error)
    if "Permission denied" in text:
        return f"Docker at {host}: permission denied; the sidecar's user needs access to the socket"
    if isinstance(error, requests.ConnectionError | OSError) or "Error while fetching server API" in text:
        return f"Docker at {host} does not answer: {_last(text)}"
    return f"Docker at {host}: {text}"


def _last(text: str) -> str:
    """The innermost reason of nested errors' texts."""
    for part in ("No such file or directory", "Connection refused", "timed out", "Connection aborted"):
        if part in text:
            return part
    return text[:200]
